"""A clock for cooperative work: how long a hydration may run before others get their turn.

    pace = TimeSlice(0.02)
    engine = Engine(schema, lambda table: Source(..., expired=pace.expired))
    for change in engine.add_query(query_id, query):
        if change is YIELD:
            await asyncio.sleep(0)
            pace.restart()

The slice stays expired until it is restarted, so a marker that a plain call inside had to drop comes again with the
next row.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class TimeSlice:
    """Seconds of work since the last restart. Invariant: once expired, expired until `restart`."""

    __slots__ = ("_clock", "_end", "_seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def expired(self) -> bool:
        """Whether the slice is used up."""
        return self._clock() >= self._end

    def restart(self) -> None:
        """Begin a new slice, after the others had theirs."""
        self._end = self._clock() + self._seconds
