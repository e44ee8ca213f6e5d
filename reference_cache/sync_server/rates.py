"""Rate limits: messages and bytes per second, and mutations per window. Pure; times are arguments, in seconds.

A client that sends too fast is not refused: its socket is read more slowly, and TCP holds it back. Mutations also have
zero-cache's limit (`ZERO_PER_USER_MUTATION_LIMIT_MAX`), which refuses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BURST_SECONDS = 10.0
"""A client that was quiet may send as much in one burst as its rate allows in this time."""

MAX_WINDOWS = 10_000
"""How many client groups are counted before those of past windows are dropped."""


@dataclass(frozen=True, slots=True)
class ClientRate:
    """How much a client may send per second on average."""

    messages: float
    bytes: float


class RateLimiter:
    """A leaky bucket for one client: what it has sent, minus what its rate has allowed since."""

    __slots__ = ("_bytes", "_messages", "_rate", "_updated")

    def __init__(self, rate: ClientRate, now: float) -> None:
        self._rate = rate
        # When `wait_after` was last called.
        self._updated = now
        # The fill level, in messages and bytes.
        self._messages = 0.0
        # At least 0, as of `_updated`.
        self._bytes = 0.0

    def wait_after(self, size: int, now: float) -> float:
        """Count a message of `size` bytes; returns how many seconds to stop reading, usually 0."""
        rate, passed = self._rate, now - self._updated
        self._updated = now
        self._messages = max(0.0, self._messages - passed * rate.messages) + 1
        self._bytes = max(0.0, self._bytes - passed * rate.bytes) + size
        return max(0.0, self._messages / rate.messages - BURST_SECONDS, self._bytes / rate.bytes - BURST_SECONDS)


@dataclass(slots=True)
class _Window:
    """Mutations of a group: in the window `number`, and in the one before it."""

    number: int = 0
    count: int = 0
    before: int = 0


@dataclass(slots=True)
class MutationLimit:
    """At most `most` mutations of a client group in a sliding window of `seconds`.

    Counted as in zero-cache: per client group, the previous window in proportion, refused mutations not at all.
    """

    most: int
    seconds: float
    # By client group id; written by `admits`.
    _windows: dict[str, _Window] = field(default_factory=dict)

    def admits(self, group_id: str, count: int, now: float) -> bool:
        """Whether the group may send `count` more mutations; if so, they are counted. `now` since the epoch."""
        number, into = divmod(now, self.seconds)
        window = self._windows.get(group_id)
        if window is None:
            self._forget_old(number)
            window = self._windows[group_id] = _Window(int(number))
        if window.number != number:
            window.before = window.count if window.number == number - 1 else 0
            window.number, window.count = int(number), 0
        used = window.before * (1 - into / self.seconds) + window.count
        if used + count > self.most:
            return False
        window.count += count
        return True

    def _forget_old(self, number: float) -> None:
        if len(self._windows) >= MAX_WINDOWS:
            self._windows = {group: each for group, each in self._windows.items() if each.number >= number - 1}
