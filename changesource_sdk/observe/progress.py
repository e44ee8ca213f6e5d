"""Shows the progress of a snapshot: a bar on a terminal, otherwise a log line every few seconds.

Polls the reports of the stages and shows nothing while no snapshot is being taken. Also logs errors of the pipeline,
each once until it changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from service_kit.logs import event, logger

log = logger("pipeline")

POLL_INTERVAL = 0.25
LINE_INTERVAL = 5.0
Report = Mapping[str, object]


class Display(Protocol):
    """Somewhere to show a snapshot's progress."""

    def show(self, done: int, total: int, rows: int) -> None:
        """Parts done of all, and rows so far."""

    def finish(self) -> None:
        """The snapshot is complete, or no longer being taken."""


class Bar:
    """A bar on a terminal, shown only while a snapshot is being taken."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None  # the bar while a snapshot is being taken
        self._task = TaskID(0)  # of `_progress`; set by `show`

    def show(self, done: int, total: int, rows: int) -> None:
        if self._progress is None:
            columns = (TextColumn("snapshot"), BarColumn(), MofNCompleteColumn(), TextColumn("parts"))
            self._progress = Progress(
                *columns, TextColumn("{task.fields[rows]:,} rows"), TimeElapsedColumn(), console=self._console
            )
            self._task = self._progress.add_task("snapshot", total=total, rows=rows)
            self._progress.start()
        self._progress.update(self._task, completed=done, total=total, rows=rows)

    def finish(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class Lines:
    """A log line every `LINE_INTERVAL` seconds, for output that is not a terminal."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last: float | None = None  # when the last line was logged; None between snapshots

    def show(self, done: int, total: int, rows: int) -> None:
        now = self._clock()
        if self._last is None or now - self._last >= LINE_INTERVAL:
            self._last = now
            event(log, logging.INFO, "snapshot in progress", parts=done, of=total, rows=rows)

    def finish(self) -> None:
        self._last = None


class StageWatch:
    """Shows progress and logs errors from the reports of stages. Used by one task."""

    def __init__(self, display: Display, since_ms: float = 0.0) -> None:
        self._display = display
        self._since_ms = since_ms  # older reports are of an earlier run and ignored
        self._states: dict[str, object] = {}  # by stage: the state of its last report
        self._errors: dict[str, object] = {}  # by stage: the error of its last report, which was logged

    async def run(self, reports: Callable[[], Mapping[str, Report]]) -> None:
        """Poll the reports until cancelled; `reports` may block and runs in a thread."""
        try:
            while True:
                self.update(await asyncio.to_thread(reports))
                await asyncio.sleep(POLL_INTERVAL)
        finally:
            self._display.finish()

    def update(self, stages: Mapping[str, Report]) -> None:
        """Compare the present reports with the last ones."""
        for name, report in stages.items():
            updated = report.get("updated_ms")
            if not isinstance(updated, int | float) or updated < self._since_ms:
                continue
            self._report_error(name, report.get("error"))
            self._report_state(name, report)

    def _report_state(self, name: str, report: Report) -> None:
        state = report.get("state")
        before = self._states.get(name)
        self._states[name] = state
        if state == "snapshot":
            self._display.show(_count(report, "done"), _count(report, "total"), _count(report, "rows"))
        elif before == "snapshot":
            self._display.finish()
            if state == "tailing":
                rows, watermark = _count(report, "rows"), report.get("watermark")
                event(log, logging.INFO, "snapshot complete", stage=name, rows=rows, watermark=watermark)

    def _report_error(self, name: str, error: object) -> None:
        known, self._errors[name] = self._errors.get(name), error
        if isinstance(error, dict) and error != known:
            self._display.finish()
            fields = {key: value or None for key, value in error.items() if key != "message"}
            event(log, logging.ERROR, str(error.get("message")), stage=name, **fields)


def _count(report: Report, field: str) -> int:
    value = report.get(field)
    return value if isinstance(value, int) else 0
