"""Shows the progress of a seed: a bar on a terminal, otherwise a log line every few seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from changesource_cli.output import stderr
from changesource_sdk.seed.build import SeedProgress
from service_kit.logs import event, logger

LINE_INTERVAL_S = 5.0
_log = logger("seed")


class _Lines:
    """Logs how much is done, at most once per `LINE_INTERVAL_S`."""

    def __init__(self, what: str, unit: str) -> None:
        self._what = what
        self._unit = unit
        # What is to be done and what is done, in units; when the last line was logged, on the monotonic clock.
        self._total = 0
        self._done = 0  # see `_total`
        self._last = monotonic()  # see `_total`

    def planned(self, amount: int) -> None:
        self._total += amount

    def done(self, amount: int) -> None:
        self._done += amount
        if monotonic() - self._last >= LINE_INTERVAL_S:
            self._last = monotonic()
            event(_log, logging.INFO, self._what, done=self._done, of=self._total, unit=self._unit)


@contextmanager
def shown_progress(what: str, unit: str, *, as_json: bool) -> Iterator[SeedProgress]:
    """Show progress inside the block; nothing is left of the bar afterwards."""
    if as_json or not stderr.is_terminal:
        lines = _Lines(what, unit)
        yield SeedProgress(lines.planned, lines.done)
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def planned(amount: int) -> None:
            bar.update(task, total=(bar.tasks[0].total or 0) + amount)

        yield SeedProgress(planned, lambda amount: bar.update(task, advance=amount))
