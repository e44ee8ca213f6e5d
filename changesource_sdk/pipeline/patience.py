"""How long a source may take to answer before it is said to hold the stream up.

A source that returns from `changes()` when there is nothing new (most do) is asked again and again, so an answer that
does not come means something: a query that hangs, a lock, a network that went away. A source that waits for changes
inside `changes()` looks the same when it is idle; such an adapter has to say itself that its store does not answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from changesource_sdk.observe.logs import logger
from changesource_sdk.observe.warnings import clear, warn

_log = logger("runner")
T = TypeVar("T")

STUCK_AFTER_S = 30.0
TIMES_LONGEST = 3.0
"""An answer may take so many times as long as the longest that came before: tables that take a minute always do."""
SAY_AGAIN_S = 60.0
CODE, WHERE = "source-not-answering", "changes()"


class Patience:
    """Watches the answers of one source. `answers` runs in the thread that reads, `look` in another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._returns = False  # whether the source is known to return when there is nothing new: it has done so
        self._asked_at: float | None = None  # since when an answer is awaited
        self._longest = 0.0
        self._said_at: float | None = None  # when the warning in force was last said

    def answers(self, transactions: Iterator[T]) -> Iterator[T]:
        """The same transactions; only the time that the source takes for each is counted."""
        is_empty = True
        while True:
            with self._lock:
                self._asked_at = self._clock()
            try:
                found = next(transactions)
            except StopIteration:
                self._returns |= is_empty
                return
            finally:
                self._answered()
            is_empty = False
            yield found

    def look(self) -> None:
        """Warn if an answer is overdue."""
        with self._lock:
            waited = self._waited()
            is_overdue = self._returns and waited > max(STUCK_AFTER_S, TIMES_LONGEST * self._longest)
            is_said = self._said_at is not None and self._clock() - self._said_at < SAY_AGAIN_S
            if not is_overdue or is_said:
                return
            self._said_at = self._clock()
        fix = "see what the store is busy with; reading continues when it answers"
        message = f"the source has not answered for {round(waited)} s"
        warn(_log, CODE, WHERE, message, fix, holds="stream", waited_s=round(waited))

    def _waited(self) -> float:
        return 0.0 if self._asked_at is None else self._clock() - self._asked_at

    def _answered(self) -> None:
        with self._lock:
            waited = self._waited()
            was_said, self._said_at, self._asked_at = self._said_at is not None, None, None
            # One that waited for a change inside the call says nothing of how long looking takes.
            self._longest = max(self._longest, waited) if self._returns else 0.0
        if was_said:
            clear(_log, CODE, WHERE, "the source answers again")

    def end(self) -> None:
        """Nothing is awaited any more."""
        self._answered()
