"""Limits how long one pipeline may occupy the thread, checked wherever rows are read.

Pushes and EXISTS tests are plain calls, so a pipeline that reads millions of rows in one of them blocks the event loop
for that time. Sources call `expired` before every fetch and between rows; while a limit is set, it raises `Overrun`.
Only work that reads rows is checked; nothing else takes long.

    effort.limit_hydration(0.25)     # all that follows is one query's hydration
    effort.limit_pushes(1.0)         # `Source` says by `turn` and `owner` whose pipeline has the change
    effort.free()
"""

from __future__ import annotations

import sqlite3
import time

from reference_cache.zql.ivm.time_slice import TimeSlice

LONGEST_PUSH = 0.2
"""Seconds that one change may take in one pipeline; nothing else runs meanwhile."""

ORDINARY_COST = 0.02
ORDINARY_COST_OF_CHANGE = 0.0005
"""Seconds that a query may always use in one step: a constant, plus this much for each change."""


class Overrun(Exception):
    """A pipeline took more time than allowed. It was stopped in the middle of a change and must be destroyed."""

    code = "query-too-expensive"


def is_overrun(error: BaseException) -> bool:
    """Whether a pipeline was stopped for the time it took: by `expired`, or inside a SQLite statement."""
    return isinstance(error, Overrun) or (isinstance(error, sqlite3.OperationalError) and str(error) == "interrupted")


class Effort:
    """The work on the sources of one engine. Invariant: `expired` raises only while a limit is set."""

    __slots__ = (
        "_began",
        "_changes",
        "_checked",
        "_costs",
        "_cpu",
        "_end",
        "_last_owner",
        "_seen",
        "_slice",
        "_total",
        "owner",
        "turn",
    )

    def __init__(self, slice: TimeSlice) -> None:
        self._slice = slice
        self.turn = 0  # grows with every pipeline that is handed a change; written by `Source`
        self.owner: object = None  # whose pipeline has the turn; written by `Source`
        self._seen = 0  # the turn of the last check
        self._began = 0.0  # the first check of that turn
        self._checked = 0.0  # the last check
        self._last_owner: object = None  # and whose pipeline it was; one query may have many turns in succession
        self._cpu = 0.0  # this thread's processor time when the limit was set
        self._end = 0.0  # hydration: when it must be over. Pushes: what all of them may take, in seconds
        self._changes = -1  # pushes: changes so far; -1 while no pushes are limited
        self._costs: dict[object, float] = {}  # pushes: seconds per owner
        self._total = 0.0  # their sum

    def expired(self) -> bool:
        """Whether the time slice is used up; raises `Overrun`."""
        if self._changes >= 0:
            self._check_push(time.monotonic())
        elif self._end and time.monotonic() > self._end:
            raise Overrun("the query takes too long")
        return self._slice.expired()

    def interrupts(self) -> bool:
        """For SQLite, between the instructions of a statement: whether it is to be interrupted."""
        try:
            self.expired()
        except Overrun:
            return True
        return False

    def limit_hydration(self, seconds: float) -> None:
        """Limits all work up to `free`, the hydration of one query, to `seconds`."""
        self._end = time.monotonic() + seconds

    def limit_pushes(self, seconds: float) -> None:
        """Limits the pushes of one step, up to `free`, to `seconds` in addition to the ordinary cost per change."""
        self._changes, self._total, self._end, self._cpu = 0, 0.0, seconds, time.thread_time()
        self._costs.clear()

    def note_change(self) -> None:
        """One more change is about to be pushed."""
        self._changes += 1
        self._last_owner = None

    def free(self) -> None:
        """Removes the limit."""
        self._changes, self._end = -1, 0.0

    def _check_push(self, now: float) -> None:
        if self.turn != self._seen:
            self._seen, self._began = self.turn, now
            if self.owner != self._last_owner:
                self._last_owner, self._checked = self.owner, now
                return
        spent, self._checked = now - self._checked, now
        cost = self._costs[self.owner] = self._costs.get(self.owner, 0.0) + spent
        self._total += spent
        ordinary = self._changes * ORDINARY_COST_OF_CHANGE
        greedy = self._total > self._end + ordinary and cost > ORDINARY_COST + ordinary
        if (greedy or now - self._began > LONGEST_PUSH) and self._has_worked(now):
            raise Overrun(f"changes take too long: {cost:.2f} s of {self._total:.2f} s for all queries")

    def _has_worked(self, now: float) -> bool:
        """Whether the thread used the processor in that time; on a busy machine it may only have waited for one."""
        return time.thread_time() - self._cpu > LONGEST_PUSH / 2 or now - self._began > 10 * LONGEST_PUSH
