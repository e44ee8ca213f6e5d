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

from changesource_sdk.observe.warnings import Holds, clear, warn
from service_kit.logs import logger

_log = logger("runner")
T = TypeVar("T")

STUCK_AFTER_S = 30.0
TIMES_LONGEST = 3.0
"""An answer may take so many times as long as the longest that came before: tables that take a minute always do."""
SAY_AGAIN_S = 60.0
CODE = "source-not-answering"


class Patience:
    """Watches the answers to one kind of question, asked in one thread; `look` may be called in another."""

    def __init__(
        self,
        where: str = "changes()",
        holds: Holds = "stream",
        *,
        returns: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`returns` says that an answer always comes; otherwise that is believed once an empty one has come."""
        self._where = where
        self._holds = holds
        self._returns = returns
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at: float | None = None  # since when an answer is awaited
        self._longest = 0.0  # seconds that an answer has taken
        self._said_at: float | None = None  # when the warning in force was last said

    def answers(self, ask: Callable[[], Iterator[T]]) -> Iterator[T]:
        """What the source gives when it is asked; only the time that it takes itself is counted."""
        transactions: Iterator[T] | None = None
        is_empty = True
        while True:
            self.asked()
            try:
                transactions = ask() if transactions is None else transactions
                found = next(transactions)
            except StopIteration:
                self._returns |= is_empty
                return
            finally:
                self.answered()
            is_empty = False
            yield found

    def asked(self) -> None:
        """The wait begins."""
        with self._lock:
            self._asked_at = self._clock()

    def answered(self) -> None:
        """The wait is over, or given up."""
        with self._lock:
            # One that waited for a change inside the call says nothing of how long looking takes.
            self._longest = max(self._longest, self._waited()) if self._returns else 0.0
            was_said, self._said_at, self._asked_at = self._said_at is not None, None, None
        if was_said:
            clear(_log, CODE, self._where, "the source answers again")

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
        warn(_log, CODE, self._where, message, fix, holds=self._holds)

    def _waited(self) -> float:
        return 0.0 if self._asked_at is None else self._clock() - self._asked_at
