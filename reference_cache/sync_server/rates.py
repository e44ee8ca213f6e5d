"""How fast a client may send: messages and bytes per second, and mutations per window. Pure; times are given.

A client that sends faster is not refused: its socket is read more slowly, and the network holds it back. Mutations have
zero-cache's own limit (`ZERO_PER_USER_MUTATION_LIMIT_MAX`), which refuses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BURST_SECONDS = 10.0
"""A client that was quiet may send what it could have sent in this time all at once."""

MOST_WINDOWS = 10_000
"""Client groups whose mutations are counted before those of windows long past are forgotten."""


@dataclass(frozen=True, slots=True)
class ClientRate:
    """The most a client may send per second, in the long run."""

    messages: float
    bytes: float


class Pace:
    """One client's use of its rate. Invariant: the debts are what it has sent less what time has paid off."""

    __slots__ = ("_bytes", "_messages", "_paid_until", "_rate")

    def __init__(self, rate: ClientRate, now: float) -> None:
        self._rate = rate
        self._paid_until = now
        self._messages = 0.0  # debts, in messages and bytes
        self._bytes = 0.0

    def wait_after(self, size: int, now: float) -> float:
        """Count a message of that many bytes; how many seconds to read nothing more, mostly 0."""
        rate, passed = self._rate, now - self._paid_until
        self._paid_until = now
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
    """At most `most` mutations of a client group in any window of `seconds`, the last one counted by its share.

    As zero-cache counts: per client group, and a refused mutation is not counted.
    """

    most: int
    seconds: float
    _windows: dict[str, _Window] = field(default_factory=dict)

    def admits(self, group_id: str, count: int, now: float) -> bool:
        """Whether the group may send that many more now; if so, they are counted."""
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
        if len(self._windows) >= MOST_WINDOWS:
            self._windows = {group: each for group, each in self._windows.items() if each.number >= number - 1}
