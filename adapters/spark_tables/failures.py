"""Tables that cannot be followed at present: each has a warning and is polled again, while the others continue."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from adapters.spark_tables.settings import TableSettings
from changesource_sdk import ChangesourceError, clear_warning, warn
from changesource_sdk.toolkit import logger, settle_warnings

_log = logger("spark-tables")

LONGEST_PAUSE_S = 30.0
SAY_AGAIN_S = 60.0


@dataclass(slots=True)
class Failure:
    """Why one table cannot be followed. `note` writes all fields; times are monotonic seconds."""

    error: ChangesourceError
    failures: int = 0  # consecutive polls that failed
    said_at: float = float("-inf")  # when the warning was last logged


class Failures:
    """The failing tables. Invariant: exactly these have a warning. Used in the thread of `changes`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing: dict[str, Failure] = {}  # by table; `note` adds, `over` removes
        self._polled_well: set[str] = set()  # tables with a successful poll in this process

    def __contains__(self, name: str) -> bool:
        return name in self._failing

    def note(self, table: TableSettings, error: ChangesourceError) -> float:
        """A poll failed; returns the seconds to wait before the next one."""
        known = self._failing.get(table.name)
        if known is not None and known.error.code != error.code:
            self.over(table)
            known = None
        failure = self._failing.setdefault(table.name, Failure(error))
        is_reported = known is not None and known.error.message == error.message
        failure.error = error
        failure.failures += 1
        if not is_reported or self._clock() - failure.said_at >= SAY_AGAIN_S:
            failure.said_at = self._clock()
            warn(_log, error.code, table.where, error.message, error.fix, holds="table")
        return min(table.poll * 2.0 ** min(failure.failures, 20), max(LONGEST_PAUSE_S, table.poll))

    def over(self, table: TableSettings) -> None:
        """A poll succeeded: clear the warning."""
        failure = self._failing.pop(table.name, None)
        if table.name not in self._polled_well:
            # An earlier process, or the snapshot, may have warned about the table.
            self._polled_well.add(table.name)
            settle_warnings(_log, table.where)
        if failure is not None:
            clear_warning(_log, failure.error.code, table.where, "the table is followed again")

    def errors(self) -> list[ChangesourceError]:
        """The error of each failing table."""
        return [failure.error for failure in self._failing.values()]
