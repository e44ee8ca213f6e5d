"""The clock queries expire by: it stands still while no client of the group is connected, and survives restarts."""

from __future__ import annotations

import time
from collections.abc import Callable


class TtlClock:
    """Milliseconds during which somebody was connected. Invariant: never goes back."""

    __slots__ = ("_clock", "_elapsed", "_since")

    def __init__(self, elapsed: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._clock = clock
        self._since: float | None = None

    def now(self) -> float:
        """The time on the clock."""
        return self._elapsed if self._since is None else self._elapsed + (self._clock() - self._since) * 1000

    def start(self) -> None:
        """Somebody is connected; harmless if somebody was."""
        if self._since is None:
            self._since = self._clock()

    def stop(self) -> None:
        """Nobody is connected any more."""
        self._elapsed = self.now()
        self._since = None
