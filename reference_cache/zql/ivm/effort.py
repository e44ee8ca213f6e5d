"""Limits how long one pipeline may occupy the thread, checked wherever rows are read.

Pushes and EXISTS tests are plain calls, so a pipeline that reads millions of rows in one of them blocks the event loop
for that time. Sources call `expired` before every fetch and between rows; while a limit is set, it raises `Overrun`.
Only work that reads rows is checked; nothing else takes long.

Pushes are limited by processor time: on a busy machine a thread may wait for a processor longer than any limit, in the
middle of the cheapest query. Reading the processor's clock is a system call, so it is read only when a limit is
exceeded by the clock on the wall.

    effort.limit_hydration(0.25)     # all that follows is one query's hydration
    effort.limit_pushes(1.0)         # `Source` says by `turn` and `owner` whose pipeline has the change
    effort.free()
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from reference_cache.zql.ivm.time_slice import TimeSlice

LONGEST_PUSH = 0.2
"""Seconds that one change may take in one pipeline; then it has half of that in processor time. Nothing else runs."""

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
        "_clock",
        "_costs",
        "_cpu",
        "_cpu_clock",
        "_end",
        "_last_owner",
        "_long_at",
        "_seen",
        "_slice",
        "_step_began",
        "_total",
        "owner",
        "turn",
    )

    def __init__(
        self,
        slice: TimeSlice,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._slice = slice
        self._clock = clock
        self._cpu_clock = cpu_clock
        self.turn = 0  # grows with every pipeline that is handed a change; written by `Source`
        self.owner: object = None  # whose pipeline has the turn; written by `Source`
        self._seen = 0  # the turn of the last check
        self._began = 0.0  # the first check of that turn
        self._long_at: float | None = None  # processor time when that turn had taken `LONGEST_PUSH`; None before that
        self._checked = 0.0  # the last check
        self._last_owner: object = None  # and whose pipeline it was; one query may have many turns in succession
        self._cpu = 0.0  # this thread's processor time when pushes were limited
        self._step_began = 0.0  # and the time
        self._end = 0.0  # hydration: when it must be over. Pushes: what all of them may take, in seconds
        self._changes = -1  # pushes: changes so far; -1 while no pushes are limited
        self._costs: dict[object, float] = {}  # pushes: seconds per owner
        self._total = 0.0  # their sum

    def expired(self) -> bool:
        """Whether the time slice is used up; raises `Overrun`."""
        if self._changes >= 0:
            self._check_push(self._clock())
        elif self._end and self._clock() > self._end:
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
        self._end = self._clock() + seconds

    def limit_pushes(self, seconds: float) -> None:
        """Limits the pushes of one step, up to `free`, to `seconds` in addition to the ordinary cost per change."""
        self._changes, self._total, self._end = 0, 0.0, seconds
        self._step_began, self._cpu = self._clock(), self._cpu_clock()
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
            self._seen, self._began, self._long_at = self.turn, now, None
            if self.owner != self._last_owner:
                self._last_owner, self._checked = self.owner, now
                return
        spent, self._checked = now - self._checked, now
        cost = self._costs[self.owner] = self._costs.get(self.owner, 0.0) + spent
        self._total += spent
        if self._is_greedy(cost, 1.0) and self._is_greedy(cost, self._processor_share(now)):
            raise Overrun(f"changes take too long: {cost:.2f} s of {self._total:.2f} s for all queries")
        if now - self._began > LONGEST_PUSH and self._is_long():
            raise Overrun(f"one change takes too long: {now - self._began:.2f} s in one query")

    def _is_greedy(self, cost: float, counted: float) -> bool:
        """Whether all pushes take too long and the owner's are expensive, if `counted` of the time (0 to 1) counts."""
        ordinary = self._changes * ORDINARY_COST_OF_CHANGE
        return self._total * counted > self._end + ordinary and cost * counted > ORDINARY_COST + ordinary

    def _processor_share(self, now: float) -> float:
        """How much of a processor this thread had in this step, from 0 to 1."""
        return (self._cpu_clock() - self._cpu) / max(now - self._step_began, 1e-9)

    def _is_long(self) -> bool:
        """Whether the turn, which has taken `LONGEST_PUSH`, has since used half of it as processor time."""
        used = self._cpu_clock()
        if self._long_at is None:
            self._long_at = used
        return used - self._long_at > LONGEST_PUSH / 2
