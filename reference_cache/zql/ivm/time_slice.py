"""A clock for cooperative work: how long a hydration may run before other tasks do.

    pace = TimeSlice(0.02)
    engine = Engine(schema, lambda table: Source(..., expired=pace.expired))
    for pause in engine.add_query(query, rows).hydrate():
        await asyncio.sleep(0)
        pace.restart()

The slice stays expired until it is restarted, so a marker that was dropped inside a plain call appears again with the
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
        # When the slice is used up; written by `restart`.
        self._end = clock() + seconds

    def expired(self) -> bool:
        """Whether the slice is used up."""
        return self._clock() >= self._end

    def restart(self) -> None:
        """Begin a new slice, after other tasks have run."""
        self._end = self._clock() + self._seconds
