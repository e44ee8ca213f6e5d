"""Progress of a snapshot, for whoever started it: a bar on a terminal, a line now and then elsewhere.

It watches the reports of the stages and says nothing while no snapshot is being taken. Errors of the pipeline are told
here too, once each: the same error again is not news.
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

LOOK_INTERVAL = 0.25
LINE_INTERVAL = 5.0
Report = Mapping[str, object]


class Display(Protocol):
    """Somewhere to show a snapshot's progress."""

    def show(self, done: int, total: int, rows: int) -> None:
        """Parts done of all, and rows so far."""

    def finish(self) -> None:
        """The snapshot is complete, or no longer being taken."""


class Bar:
    """A bar on a terminal; it is there only while a snapshot is being taken."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task = TaskID(0)

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
    """A log line at an interval, for output nobody looks at while it runs."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def show(self, done: int, total: int, rows: int) -> None:
        now = self._clock()
        if self._last is None or now - self._last >= LINE_INTERVAL:
            self._last = now
            event(log, logging.INFO, "snapshot in progress", parts=done, of=total, rows=rows)

    def finish(self) -> None:
        self._last = None


class StageWatch:
    """Turns reports into progress and news. Invariant: an error is told once until it changes or goes away."""

    def __init__(self, display: Display, since_ms: float = 0.0) -> None:
        self._display = display
        self._since_ms = since_ms  # older reports are of a former run and no news
        self._states: dict[str, object] = {}
        self._errors: dict[str, object] = {}

    async def run(self, reports: Callable[[], Mapping[str, Report]]) -> None:
        """Look at an interval, until cancelled; `reports` may block."""
        try:
            while True:
                self.look(await asyncio.to_thread(reports))
                await asyncio.sleep(LOOK_INTERVAL)
        finally:
            self._display.finish()

    def look(self, stages: Mapping[str, Report]) -> None:
        """Take in the present reports."""
        for name, report in stages.items():
            updated = report.get("updated_ms")
            if not isinstance(updated, int | float) or updated < self._since_ms:
                continue
            self._tell_error(name, report.get("error"))
            self._tell_state(name, report)

    def _tell_state(self, name: str, report: Report) -> None:
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

    def _tell_error(self, name: str, error: object) -> None:
        told, self._errors[name] = self._errors.get(name), error
        if isinstance(error, dict) and error != told:
            self._display.finish()
            fields = {key: value or None for key, value in error.items() if key != "message"}
            event(log, logging.ERROR, str(error.get("message")), stage=name, **fields)


def _count(report: Report, field: str) -> int:
    value = report.get(field)
    return value if isinstance(value, int) else 0
