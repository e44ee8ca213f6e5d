"""Runners in a thread, and ways to wait for what they do without sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import CorruptLog
from changesource_sdk.pipeline.inline import InlineRunner
from protocol.framing import unframe
from service_kit.backoff import Backoff

PATIENCE_S = 60.0


class Watched:
    """A log and its state directory under observation."""

    def __init__(self, state: Path | LogStore, patience_s: float = PATIENCE_S) -> None:
        self.store = SqliteLogStore(state) if isinstance(state, Path) else state
        self.state = self.store.layout.root
        self._patience_s = patience_s
        self.log = self.store.open_log()
        self._ear = self.store.listen()

    def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        """Wait, paced by wake-ups, until the condition holds."""
        deadline = time.monotonic() + self._patience_s
        while not self._holds(condition):
            assert time.monotonic() < deadline, f"{what} did not come; stages: {self.store.reports.all()}"
            self._ear.wait(0.02)

    @staticmethod
    def _holds(condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except CorruptLog:
            # A damaged log stays in its place until the runner opens it.
            return False

    def until_position(self, position: object) -> None:
        self.until(lambda: self.log.state().position == position, f"position {position}")

    def until_generation(self, generation: int) -> None:
        self.until(lambda: self.log.state().generation == generation, f"generation {generation}")

    def stage(self) -> dict[str, object]:
        return self.store.reports.all().get("pipeline", {})

    def error_code(self) -> object:
        error = self.stage().get("error")
        return error.get("code") if isinstance(error, dict) else None

    def snapshot_payloads(self) -> list[bytes]:
        (record,) = self.log.snapshots()
        blocks = snapshots.blocks(record.directory, snapshots.read_manifest(record.directory))
        return [payload for block in blocks for payload in unframe(block)]

    def log_payloads(self) -> list[bytes]:
        stored = self.log.read_after("00", 1 << 30)
        return [payload for item in stored for chunk in item.chunks() for payload in unframe(chunk)]

    def close(self) -> None:
        self._ear.close()
        self.log.close()


class Runner(Protocol):
    """What both runners are to a test."""

    stop: threading.Event

    def run(self) -> None: ...


@contextmanager
def watched(runner: Runner, state: Path | LogStore, patience_s: float = PATIENCE_S) -> Iterator[Watched]:
    """A runner, in a thread until the end of the block, with its log under observation."""
    seen = Watched(state, patience_s)
    thread = threading.Thread(target=runner.run, name="runner")
    thread.start()
    try:
        yield seen
    finally:
        runner.stop.set()
        thread.join(patience_s)
        seen.close()
        assert not thread.is_alive()


@contextmanager
def running(
    make_adapter: Callable[[], Adapter], state: Path | LogStore, spill_bytes: int = 1 << 30, last_delay_s: float = 0.05
) -> Iterator[Watched]:
    """An inline runner until the end of the block."""
    store = SqliteLogStore(state) if isinstance(state, Path) else state
    backoff = Backoff(first_s=0.01, last_s=last_delay_s)
    with watched(InlineRunner(make_adapter, store, backoff=backoff, spill_bytes=spill_bytes), store) as seen:
        yield seen
