"""The clock by which queries expire. It runs only while a client of the group is connected, and survives restarts."""

from __future__ import annotations

import time
from collections.abc import Callable


class TtlClock:
    """Milliseconds during which a client was connected. Invariant: never goes back. `clock` gives seconds."""

    __slots__ = ("_clock", "_elapsed", "_since")

    def __init__(self, elapsed: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Milliseconds up to the last `stop`.
        self._elapsed = elapsed
        # When `start` was called, in seconds of `clock`; None while the clock is stopped.
        self._since: float | None = None

    def now(self) -> float:
        """The time in milliseconds."""
        return self._elapsed if self._since is None else self._elapsed + (self._clock() - self._since) * 1000

    def start(self) -> None:
        """Start the clock; idempotent."""
        if self._since is None:
            self._since = self._clock()

    def stop(self) -> None:
        """Stop the clock; idempotent."""
        self._elapsed = self.now()
        self._since = None
