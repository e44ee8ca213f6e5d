"""The inline runner: one process, no cluster, the same steps as everywhere else.

A reader thread iterates the adapter's changes, validates and encodes them, and feeds the writer (the calling thread),
which appends all that is waiting in one durable commit and only then acknowledges it to the store. Whatever fails,
recovery is one path: report it, wait, open the log again, and go on after the last position it holds.

The runner never decides twice: if the log has no generation, if a new snapshot is asked for, or if a change cannot
travel in the stream, it takes a snapshot first. It stops between transactions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Acknowledging, Adapter, Closing
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.log import EMPTY
from changesource_sdk.changelog.requests import answer_request, pending_request, take_prune
from changesource_sdk.changelog.snapshots import is_complete
from changesource_sdk.changelog.sqlite_file import set_aside
from changesource_sdk.changelog.sqlite_writer import SqliteLogWriter, open_writer
from changesource_sdk.errors import ChangesourceError, CorruptLog, StaleWriter
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.snapshotting import adapter_call, let_go, take_snapshot
from changesource_sdk.pipeline.tail import Tail
from changesource_sdk.pipeline.transactions import SPILL_BYTES
from changesource_sdk.pipeline.validate import NeedsNewGeneration

_log = logging.getLogger(__name__)

LOOK_UP_S = 0.25


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before trying again: doubles from `first_s` to `last_s`, starts over after progress."""

    first_s: float = 0.1
    last_s: float = 30.0

    def delay(self, failures: int) -> float:
        """The wait after this many failures in a row."""
        return min(self.first_s * 2.0 ** max(failures - 1, 0), self.last_s)


class _Stopped(BaseException):
    """Leaves a long step when the runner is told to stop; not an `Exception`, so no adapter swallows it."""


class InlineRunner:
    """Runs one adapter into one state directory until `stop` is set. One `run` at a time."""

    def __init__(
        self,
        make_adapter: Callable[[], Adapter],
        state_directory: Path,
        *,
        stop: threading.Event | None = None,
        backoff: Backoff | None = None,
        spill_bytes: int = SPILL_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stop = stop or threading.Event()
        self._make_adapter = make_adapter
        self._layout = StateDirectory(state_directory)
        self._backoff = backoff or Backoff()
        self._spill_bytes = spill_bytes
        self._clock = clock
        self._failures = 0
        self._above: str | None = None

    def run(self) -> None:
        """Run until told to stop. Raises only what trying again cannot mend: a state directory, a newer writer."""
        self._layout.create()
        stage = Stage(self._layout.root, "pipeline", self._clock)
        stage.flush()
        while not self.stop.is_set():
            try:
                self._run_once(stage)
            except _Stopped:
                break
            except StaleWriter as error:
                stage.failed(error)
                raise
            except NeedsNewGeneration as error:
                _log.warning("%s; a new snapshot is taken", error)
                self._above = EMPTY
            except ChangesourceError as error:
                self._recover(stage, error)
        stage.update(state="stopped")

    def _recover(self, stage: Stage, error: ChangesourceError) -> None:
        self._failures += 1
        delay = self._backoff.delay(self._failures)
        _log.error("%s; trying again in %.1f s", error, delay, exc_info=error.__cause__)
        stage.failed(error)
        if isinstance(error, CorruptLog) and self._layout.log.exists():
            kept = set_aside(self._layout.log)
            _log.error("the damaged log was set aside as %s", kept.name)
        self.stop.wait(delay)

    def _run_once(self, stage: Stage) -> None:
        writer = open_writer(self._layout.root, lambda: int(self._clock() * 1_000_000))
        try:
            with adapter_call("creating the adapter"):
                adapter = self._make_adapter()
            try:
                self._follow(stage, writer, adapter)
            finally:
                if isinstance(adapter, Closing):
                    let_go("closing the adapter", adapter.close)
        finally:
            writer.close()

    def _follow(self, stage: Stage, writer: SqliteLogWriter, adapter: Adapter) -> None:
        """A snapshot if one is due, then the tail, until the next is due."""
        above = self._snapshot_due(writer)
        if above is not None:
            self._snapshot(stage, writer, adapter, above)
        tail = Tail(adapter, writer.state(), self._layout, self._spill_bytes)
        try:
            self._append_until_due(stage, writer, adapter, tail)
        finally:
            tail.end()

    def _snapshot_due(self, writer: SqliteLogWriter) -> str | None:
        """Above which watermark a snapshot must be taken now; None if none must."""
        known = writer.snapshots()
        answer_request(self._layout.root, max((snapshot.watermark for snapshot in known), default=EMPTY))
        if not all(is_complete(snapshot.directory) for snapshot in known):
            _log.warning("a snapshot's files are missing or cut short; a new one is taken")
            return EMPTY
        request = pending_request(self._layout.root)
        if request is not None:
            return request.above
        return EMPTY if writer.state().generation == 0 else self._above

    def _snapshot(self, stage: Stage, writer: SqliteLogWriter, adapter: Adapter, above: str) -> None:
        def rows_done(rows: int) -> None:
            stage.update(rows=rows)
            if self.stop.is_set():
                raise _Stopped

        record = take_snapshot(
            adapter,
            writer,
            self._layout,
            lambda: self._clock() * 1000,
            above=above,
            begin=stage.start_snapshot,
            rows_done=rows_done,
            part_done=lambda parts: stage.update(done=parts),
        )
        self._above = None
        self._failures = 0
        answer_request(self._layout.root, record.watermark)
        stage.update(watermark=record.watermark, position=record.position)

    def _append_until_due(self, stage: Stage, writer: SqliteLogWriter, adapter: Adapter, tail: Tail) -> None:
        """Append what the tail feeds until told to stop or a snapshot is asked for."""
        stage.update(state="tailing", watermark=writer.state().head, position=writer.state().position)
        tail.start()
        while not self.stop.is_set() and pending_request(self._layout.root) is None:
            batch = tail.feed.take(LOOK_UP_S)
            if batch:
                marks = writer.append(batch)
                tail.feed.done(batch)
                self._failures = 0
                stage.recovered()
                last = batch[-1].position
                changes = sum(transaction.changes for transaction in batch)
                stage.update(position=last, watermark=marks[-1], transactions=len(batch), changes=changes)
                if isinstance(adapter, Acknowledging):
                    with adapter_call("acknowledge()"):
                        adapter.acknowledge(last)
            elif tail.is_healthy:
                stage.recovered()
            stage.beat()
            if below := take_prune(self._layout.root):
                writer.prune(below)
