"""How long to wait before the next attempt: longer each time, never in step with others, short again after success."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 10.0


class Backoff:
    """Doubles from the first wait to the longest; each wait is a random part, at least half, of that."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._next = FIRST_SECONDS

    def seconds(self) -> float:
        """The wait before the next attempt."""
        longest = self._next
        self._next = min(longest * 2, LONGEST_SECONDS)
        return longest * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """It worked: begin anew."""
        self._next = FIRST_SECONDS
