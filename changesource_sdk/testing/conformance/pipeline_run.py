"""The pipeline under test: the inline runner in a thread, or the pipeline's own process, over one state directory.

Both do what `changesource serve` does. `caught_up` waits until the log has all that was written; otherwise it raises
`Broken` with what the judge found wrong, or what the pipeline reported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.errors import StateError
from changesource_sdk.pipeline.inline import InlineRunner
from changesource_sdk.pipeline.settings import PipelineSettings, command_line
from changesource_sdk.testing.conformance.case import Broken, worded
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.testing.conformance.witness import Witness
from service_kit.backoff import Backoff

MakeAdapter = Callable[[], Adapter]
PERSISTENT = 4
"""Consecutive failures, without progress, after which `until` gives up."""
STOP_S = 5.0
START_S = 60.0
SPILL_BYTES = 64 * 1024


class Watch:
    """A state directory under observation, over as many runs of the pipeline as there are."""

    def __init__(self, state: Path, judge: Judge, patience: float) -> None:
        self.store = SqliteLogStore(state)
        self.store.layout.create()
        self.witness = Witness(self.store, judge)
        self._patience = patience
        self._wakeups = self.store.listen()

    def close(self) -> None:
        """Close the log and the store."""
        self._wakeups.close()
        self.witness.close()
        self.store.close()

    def caught_up(self) -> None:
        """Wait until all that was written is in the log; `Broken` if it does not arrive."""
        self.until(lambda: self.witness.judge.is_caught_up, self.witness.judge.missing)

    def until(self, condition: Callable[[], bool], missing: Callable[[], str]) -> None:
        """Follow the log until the condition holds; `Broken` when time is over or the pipeline keeps failing."""
        deadline = time.monotonic() + self._patience
        failures = self.failures()
        while not condition():
            if self.poll():
                deadline, failures = time.monotonic() + self._patience, self.failures()
                continue
            if self.failures() - failures >= PERSISTENT:
                raise Broken(self._reported())
            if time.monotonic() > deadline:
                raise Broken(self._reported() or missing())
            self.pause()

    def pause(self) -> None:
        """Wait a moment, less if the log moves."""
        self._wakeups.wait(0.02)

    def pid(self) -> int:
        """The process that the pipeline last reported from."""
        return int(str(self._stage().get("pid", 0)))

    def poll(self) -> bool:
        """Take what is new in the log; whether there was anything."""
        try:
            return self.witness.poll()
        except StateError:
            # A damaged log fails its readers until the pipeline has replaced it.
            return False

    def failures(self) -> int:
        """How often the pipeline failed and tried again."""
        return int(str(self._stage().get("restarts", 0)))

    def error(self) -> dict[str, str] | None:
        """The current error of the pipeline, as it reports it."""
        error = self._stage().get("error")
        return {name: str(text) for name, text in error.items()} if isinstance(error, dict) else None

    def _stage(self) -> dict[str, object]:
        return self.store.reports.all().get("pipeline", {})

    def _reported(self) -> str:
        error = self.error()
        if error is None:
            return ""
        return worded(**error)


@contextmanager
def running(make: MakeAdapter, watch: Watch) -> Iterator[threading.Thread]:
    """The inline runner until the end of the block."""
    backoff = Backoff(first_s=0.01, last_s=0.05)
    runner = InlineRunner(make, watch.store, backoff=backoff, spill_bytes=SPILL_BYTES)
    thread = threading.Thread(target=runner.run, name="pipeline under test", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        runner.stop.set()
        thread.join(STOP_S * 2)


class PipelineProcess:
    """The pipeline as a process that can be killed, for the length of a block. Invariant: none is left at its end."""

    def __init__(self, pipeline: PipelineSettings, watch: Watch) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {**os.environ, "PYTHONPATH": path, "CHANGESOURCE_LOG_LEVEL": "error"}
        command = command_line(pipeline, watch.store.layout.root)
        self._watch = watch
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def __enter__(self) -> PipelineProcess:
        """Wait until the process has started, so that later waiting is for the adapter alone."""
        deadline = time.monotonic() + START_S
        while self._watch.pid() != self.pid:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                output = self._process.communicate()[1].decode(errors="replace").strip()
                raise Broken(f"the pipeline's process did not start: {output}")
            self._watch.pause()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> int:
        """SIGKILL; the exit code."""
        self._process.kill()
        return self._process.wait()

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if that does not help; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            return self.kill()
