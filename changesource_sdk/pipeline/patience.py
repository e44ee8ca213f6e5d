"""Warns about a source that takes too long to answer, and so holds the stream up.

A source that returns from `changes()` when there is nothing new (most do) is polled again and again. If a poll does not
return, something is wrong: a query that hangs, a lock, a lost network. A source that waits for changes inside
`changes()` cannot be distinguished from one that is idle, so such an adapter must warn by itself.
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
"""An answer may take this many times as long as the longest before it: some tables always take a minute."""
SAY_AGAIN_S = 60.0
CODE = "source-not-answering"


class Patience:
    """Measures how long the calls made in one thread take; another thread may call `warn_if_overdue`."""

    def __init__(
        self,
        where: str = "changes()",
        holds: Holds = "stream",
        *,
        returns: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`returns` says that a call always returns; otherwise this is assumed once a call has returned nothing."""
        self._where = where
        self._holds = holds
        # Whether calls return when there is nothing new; set by `answers` after the first that returned nothing.
        self._returns = returns
        self._clock = clock
        self._lock = threading.Lock()
        # The next three are guarded by `_lock`; times are those of `clock`.
        self._waiting_since: float | None = None  # when the call in progress began
        self._longest = 0.0  # seconds that the longest call took
        self._warned_at: float | None = None  # when the warning in force was last logged

    def answers(self, call: Callable[[], Iterator[T]]) -> Iterator[T]:
        """Yield what `call` yields, and measure the time it takes, without the time that the caller takes."""
        transactions: Iterator[T] | None = None
        is_empty = True
        while True:
            self.begin_wait()
            try:
                transactions = call() if transactions is None else transactions
                answer = next(transactions)
            except StopIteration:
                self._returns |= is_empty
                return
            finally:
                self.end_wait()
            is_empty = False
            yield answer

    def begin_wait(self) -> None:
        """Start measuring: the source is called now."""
        with self._lock:
            self._waiting_since = self._clock()

    def end_wait(self) -> None:
        """Stop measuring, and clear a warning: the source answered, or the call was given up."""
        with self._lock:
            # A call that waited for a change does not show how long a poll takes.
            self._longest = max(self._longest, self._waited()) if self._returns else 0.0
            was_warned, self._warned_at, self._waiting_since = self._warned_at is not None, None, None
        if was_warned:
            clear(_log, CODE, self._where, "the source answers again")

    def warn_if_overdue(self) -> None:
        """Log a warning if the call in progress takes too long, again every `SAY_AGAIN_S` seconds."""
        with self._lock:
            waited = self._waited()
            is_overdue = self._returns and waited > max(STUCK_AFTER_S, TIMES_LONGEST * self._longest)
            is_warned = self._warned_at is not None and self._clock() - self._warned_at < SAY_AGAIN_S
            if not is_overdue or is_warned:
                return
            self._warned_at = self._clock()
        fix = "see what the upstream is busy with; reading continues when it answers"
        message = f"the source has not answered for {round(waited)} s"
        warn(_log, CODE, self._where, message, fix, holds=self._holds)

    def _waited(self) -> float:
        return 0.0 if self._waiting_since is None else self._clock() - self._waiting_since
