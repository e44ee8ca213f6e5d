"""Tables that cannot be followed now: each is warned of and looked at again by itself, while the others go on."""

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
class Trouble:
    """What keeps one table from being followed. Times are monotonic seconds."""

    error: ChangesourceError
    failures: int = 0  # looks in a row that met it
    said_at: float = float("-inf")


class Troubles:
    """The tables in trouble. Invariant: a warning is in force for exactly these."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[str, Trouble] = {}
        self._well: set[str] = set()  # tables of which a look has gone well

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def note(self, table: TableSettings, error: ChangesourceError) -> float:
        """A look met an error; the seconds to pause before the next."""
        known = self._found.get(table.name)
        if known is not None and known.error.code != error.code:
            self.over(table)
            known = None
        trouble = self._found.setdefault(table.name, Trouble(error))
        is_told = known is not None and known.error.message == error.message
        trouble.error = error
        trouble.failures += 1
        if not is_told or self._clock() - trouble.said_at >= SAY_AGAIN_S:
            trouble.said_at = self._clock()
            warn(_log, error.code, table.where, error.message, error.fix, holds="table")
        return min(table.poll * 2.0 ** min(trouble.failures, 20), max(LONGEST_PAUSE_S, table.poll))

    def over(self, table: TableSettings) -> None:
        """A look went well."""
        trouble = self._found.pop(table.name, None)
        if table.name not in self._well:
            # A former run, or the snapshot, may have warned of the table.
            self._well.add(table.name)
            settle_warnings(_log, table.where)
        if trouble is not None:
            clear_warning(_log, trouble.error.code, table.where, "the table is followed again")

    def errors(self) -> list[ChangesourceError]:
        """What is wrong with each table in trouble."""
        return [trouble.error for trouble in self._found.values()]
