"""How many bytes received from clients the cache holds at once: limited per client group and in total.

Whatever waits is counted: a message whose rest has not arrived, messages that wait for their turn, mutations that wait
for the application. The last part of the total is reserved for groups that hold little, so a few that send much cannot
keep the others from sending.
"""

from __future__ import annotations

from protocol.sync.errors import SyncError, overloaded

SMALL_BYTES = 64 * 1024
"""A group that holds no more than this may use the reserve."""

RESERVED_PART = 4
"""One part in this many of the total is the reserve."""


class ByteBudget:
    """The bytes held now. Invariant: `held` is their sum, never more than `total` after a `take` that returned."""

    def __init__(self, per_group: int, total: int) -> None:
        self._per_group = per_group
        self._total = total
        self._groups: dict[str, int] = {}  # client group -> bytes held; groups that hold nothing are left out
        self.held = 0

    def take(self, group_id: str, size: int) -> None:
        """Count `size` more bytes for a group; raises `SyncError` if it holds too much, or all together do.

        A group that holds nothing may take one message of any size: otherwise one above the limit could never be sent.
        """
        before = self._groups.get(group_id, 0)
        if before and before + size > self._per_group:
            raise _too_much("Too much of what this client group sent is still waiting")
        if not self._fits(before, size):
            raise _too_much("Too much of what clients sent is still waiting")
        self._groups[group_id] = before + size
        self.held += size

    def release(self, group_id: str, size: int) -> None:
        """The bytes are not held any more."""
        left = self._groups[group_id] - size
        if left:
            self._groups[group_id] = left
        else:
            del self._groups[group_id]
        self.held -= size

    def resize(self, before: int, after: int) -> None:
        """Count bytes that belong to no group yet: there were `before` of them and are `after`; raises `SyncError`."""
        if after > before and not self._fits(before, after - before):
            raise _too_much("Too much of what clients sent is still waiting")
        self.held += after - before

    def _fits(self, before: int, size: int) -> bool:
        """Whether there is room for `size` more bytes of one that holds `before`; always, if nobody else holds any."""
        reserve = 0 if before + size <= SMALL_BYTES else self._total // RESERVED_PART
        return self.held <= before or self.held + size <= self._total - reserve


def _too_much(message: str) -> SyncError:
    return overloaded(f"{message}; send it again later")
