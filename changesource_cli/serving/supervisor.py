"""Keeps the pipeline's child process running.

The child gets its settings on the command line and exits when its standard input closes, so it never outlives this
process, not even after SIGKILL. When it exits, it is restarted after a delay that doubles up to a limit and is reset
after a long run. The endpoint serves the retained log in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from changesource_cli.serving.child_output import ChildOutput
from changesource_sdk.errors import AdapterError, ConfigurationError, StateError
from service_kit import child_process
from service_kit.backoff import Backoff
from service_kit.logs import event, logger

log = logger("pipeline")

FIRST_DELAY, LAST_DELAY = 0.5, 30.0
"""Seconds before the first and, at most, before a later restart."""
HEALTHY_AFTER = 60.0
"""Seconds; after a run this long the next delay is the first again."""
USAGE = ConfigurationError.exit_code
"""The child's exit code for a configuration that cannot work."""
EXPLAINED = (0, USAGE, AdapterError.exit_code, StateError.exit_code)
"""Exit codes for which the child has logged a message."""


@dataclass(slots=True)
class PipelineHealth:
    """What `/statusz` shows of the child; written by the supervisor only.

    Invariant: `pid` is None exactly while no child runs.
    """

    pid: int | None = None
    starts: int = 0
    # Exit code of the last child, negative for a signal.
    last_exit: int | None = None
    # Seconds before the last restart.
    retry_delay: float = 0.0

    def as_json(self) -> dict[str, object]:
        return {
            "running": self.pid is not None,
            "pid": self.pid,
            "starts": self.starts,
            "lastExit": self.last_exit,
            "retryDelay": self.retry_delay,
        }


class Supervisor:
    """Runs one child until `stop`. Used by the event loop's thread only. Invariant: at most one child runs."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], *, grace: float) -> None:
        """`grace` is how many seconds a child has between SIGTERM and SIGKILL."""
        self.health = PipelineHealth()
        self._command = command
        self._environment = environment
        self._grace = grace
        self._stopping = asyncio.Event()
        # Whether the endpoint can serve without a pipeline, in which case the child is always restarted. Set by the
        # owner before `run`.
        self.is_served: Callable[[], bool] = lambda: False

    def stop(self) -> None:
        """Ask the child to end at a transaction boundary; `run` then returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Start the child, and restart it whenever it exits, until `stop` or until its settings are refused."""
        backoff = Backoff(FIRST_DELAY, LAST_DELAY)
        while not self._stopping.is_set():
            started = monotonic()
            code = await self._run_once()
            self.health.last_exit = code
            if self._stopping.is_set() or self._is_final(code):
                return
            if monotonic() - started > HEALTHY_AFTER:
                backoff.reset()
            self.health.retry_delay = delay = backoff.seconds()
            event(log, logging.WARNING, "pipeline ended, starting it again", exit=code, delay=delay)
            await self._wait_for_stop(delay)

    def _is_final(self, code: int) -> bool:
        # Refused settings stay refused, unless a pipeline has worked with them before.
        return code == USAGE and self.health.starts == 1 and not self.is_served()

    async def _run_once(self) -> int:
        output = ChildOutput()
        child = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stderr=PIPE, env=self._environment, start_new_session=True
        )
        assert child.stderr is not None
        relay = asyncio.ensure_future(output.relay(child.stderr))
        code = await self._wait_for(child)
        # Do not wait for the end of the pipe: a grandchild may hold it open.
        await asyncio.wait((relay,), timeout=1.0)
        relay.cancel()
        if code not in EXPLAINED and not self._stopping.is_set():
            output.log_crash()
        return code

    async def _wait_for(self, child: Process) -> int:
        self.health.pid = child.pid
        self.health.starts += 1
        event(log, logging.DEBUG, "pipeline started", pid=child.pid)
        exited = asyncio.ensure_future(child.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((exited, stopping), return_when=asyncio.FIRST_COMPLETED)
            return await exited if exited.done() else await child_process.end(child, self._grace, self._log_kill)
        finally:
            stopping.cancel()
            if not exited.done():
                child_process.send(child.kill)
                await exited
            self.health.pid = None

    def _log_kill(self) -> None:
        event(log, logging.WARNING, "pipeline did not stop in time, killing it", grace=self._grace)

    async def _wait_for_stop(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            pass
