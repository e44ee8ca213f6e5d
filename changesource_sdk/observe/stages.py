"""Stages: how far each part of the pipeline is, for `/statusz`, `inspect` and progress bars.

A stage writes one small report next to the log (`changelog.reports`), which any process can read. `updated_ms` changes
while the process of the stage lives (`beat`), `moved_ms` only with its position. An old `updated_ms` means dead; an old
`moved_ms` with a new `updated_ms` means idle or stuck, and `state` and `error` say which.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Literal

from changesource_sdk.changelog.coordination.reports import Reports
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.positions import Position

Activity = Literal["starting", "snapshot", "tailing", "idle", "compacting", "seeding", "backing-off", "stopped"]
MIN_INTERVAL_S = 0.2
BEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage at one moment. `done` of `total` are units of work (partitions), `rows` what passed so far.

    `lane` and `latency_ms` are set by lanes that batch; the latter is the median time from reading a change to its
    being durable. `upstream` is how far the upstream is ahead (`pipeline.upstream_head`), None if that is unknown.
    """

    stage: str
    state: Activity = "starting"
    position: Position = None
    watermark: str = ""
    transactions: int = 0
    changes: int = 0
    rows: int = 0
    done: int = 0
    total: int = 0
    restarts: int = 0
    lane: str = ""
    latency_ms: float | None = None
    error: dict[str, str] | None = None
    upstream: dict[str, object] | None = None
    updated_ms: float = 0.0
    moved_ms: float = 0.0
    pid: int = 0


def stage_of_source(source: str) -> str:
    """The name of the stage that reports a source; "" is the whole pipeline."""
    return f"source-{source}" if source else "pipeline"


def _now() -> float:
    return time.time()


class Stage:
    """Writes the reports of one stage, at most every `MIN_INTERVAL_S`; changes of state and errors at once.

    Threads may share it.
    """

    def __init__(self, reports: Reports, name: str, clock: Callable[[], float] = _now) -> None:
        self._reports = reports
        self._clock = clock
        # The newest state; written by every method, under `_lock`.
        self.report = StageReport(name, pid=os.getpid())
        self._written_at = 0.0  # clock of the last write; under `_lock`
        self._lock = threading.RLock()  # around every change of `report`

    def take_over(self) -> None:
        """Continue with the counts that another process reported; from now on this one reports the stage."""
        report = self._reports.all().get(self.report.stage)
        if report is not None:
            with self._lock:
                self.report = replace(StageReport(**report), pid=os.getpid())  # type: ignore[arg-type]

    def update(
        self,
        *,
        state: Activity | None = None,
        position: Position = None,
        watermark: str | None = None,
        transactions: int = 0,
        changes: int = 0,
        rows: int = 0,
        done: int = 0,
        total: int | None = None,
        lane: str | None = None,
        latency_ms: float | None = None,
        upstream: dict[str, object] | None = None,
    ) -> None:
        """Add to the counts (`transactions`, `changes`, `rows`, `done`) and replace the rest where given."""
        with self._lock:
            before = self.report
            moved = watermark is not None or transactions or rows
            self.report = replace(
                before,
                state=state or before.state,
                position=before.position if position is None else position,
                watermark=before.watermark if watermark is None else watermark,
                transactions=before.transactions + transactions,
                changes=before.changes + changes,
                rows=before.rows + rows,
                done=before.done + done,
                total=before.total if total is None else total,
                lane=before.lane if lane is None else lane,
                latency_ms=before.latency_ms if latency_ms is None else latency_ms,
                upstream=before.upstream if upstream is None else upstream,
                moved_ms=self._clock() * 1000 if moved else before.moved_ms,
            )
            urgent = state is not None and state != before.state
            if urgent or self._clock() - self._written_at >= MIN_INTERVAL_S:
                self._write()

    def start(self, state: Activity, units: int) -> None:
        """Begin a piece of work: set the counts of rows and units to zero, and write the report."""
        with self._lock:
            moved_ms = self._clock() * 1000
            self.report = replace(self.report, state=state, rows=0, done=0, total=units, moved_ms=moved_ms)
            self._write()

    def failed(self, error: ChangesourceError) -> None:
        """Report an error; the stage will try again after a delay."""
        with self._lock:
            restarts = self.report.restarts + 1
            self.report = replace(self.report, state="backing-off", error=error.as_json(), restarts=restarts)
            self._write()

    def recovered(self) -> None:
        """Clear the last error."""
        with self._lock:
            if self.report.error is not None:
                self.report = replace(self.report, error=None)
                self._write()

    def beat(self) -> None:
        """Renew `updated_ms` if the report is older than `BEAT_S` seconds, to show that the process lives."""
        with self._lock:
            if self._clock() - self._written_at >= BEAT_S:
                self._write()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Call `beat` from another thread while this one does something long, such as planning a snapshot."""
        is_over = threading.Event()

        def beat() -> None:
            while not is_over.wait(1.0):
                self.beat()

        thread = threading.Thread(target=beat, name="changesource-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def flush(self) -> None:
        """Write updates that were held back."""
        self._write()

    def _write(self) -> None:
        with self._lock:
            self._written_at = self._clock()
            self.report = replace(self.report, updated_ms=self._written_at * 1000)
            self._reports.leave(self.report.stage, asdict(self.report))
