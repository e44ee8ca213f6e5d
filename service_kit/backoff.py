"""How long to wait before the next attempt: longer each time, up to a limit, and short again after success."""

from __future__ import annotations

import random
from collections.abc import Callable

LONGEST_RECONNECT_S = 10.0


class Backoff:
    """Doubles from `first_s` to `last_s` seconds; a wait is shorter by a random part of at most `jitter` (0 to 1)."""

    def __init__(
        self,
        first_s: float = 0.1,
        last_s: float = 30.0,
        *,
        jitter: float = 0.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._jitter = jitter
        self._chance = chance
        # Attempts that failed since the last success; written by `seconds` and `reset`.
        self.failures = 0

    def seconds(self) -> float:
        """Count a failed attempt; the wait before the next one."""
        self.failures += 1
        return self.delay(self.failures) * (1 - self._jitter + self._jitter * self._chance())

    def reset(self) -> None:
        """An attempt succeeded: the next wait is the first again."""
        self.failures = 0

    def delay(self, failures: int) -> float:
        """The longest wait after so many failures in a row, without counting one."""
        # Bounded: as a float, 2 ** 1024 raises, and an upstream may be away for days.
        return min(self._first_s * 2.0 ** min(max(failures - 1, 0), 100), self._last_s)


def reconnect_backoff(chance: Callable[[], float] = random.random) -> Backoff:
    """For connections: at random between half the wait and all of it, so that many peers do not return in step."""
    return Backoff(0.1, LONGEST_RECONNECT_S, jitter=0.5, chance=chance)
