"""Limits the bytes received from clients and not yet processed, per client group and in total.

Counted are incomplete messages, messages that wait to be processed, and mutations that wait for the application. A
quarter of the total is reserved for groups that hold little, so a few groups that send much cannot block the others.
"""

from __future__ import annotations

from protocol.sync.errors import SyncError, overloaded

SMALL_BYTES = 64 * 1024
"""A group that holds at most this many bytes may use the reserve."""

RESERVED_PART = 4
"""The reserve is the total divided by this."""


class ByteBudget:
    """The counters; used on the cache's event loop only.

    Invariant: `held` is at most `total`, except that one holder alone may hold more.
    """

    def __init__(self, per_group: int, total: int) -> None:
        self._per_group = per_group
        self._total = total
        # Client group id -> bytes held; groups that hold nothing have no entry.
        self._groups: dict[str, int] = {}
        # Bytes of all groups, and those counted by `resize`, which belong to no group yet.
        self.held = 0

    def take(self, group_id: str, size: int) -> None:
        """Count `size` more bytes for a group; raises `SyncError` if the group's limit or the total would be exceeded.

        A group that holds nothing may take one message above its limit: otherwise that could never be sent.
        """
        before = self._groups.get(group_id, 0)
        if before and before + size > self._per_group:
            raise _too_much("Too much of what this client group sent is still waiting")
        if not self._fits(before, size):
            raise _too_much("Too much of what clients sent is still waiting")
        self._groups[group_id] = before + size
        self.held += size

    def release(self, group_id: str, size: int) -> None:
        """Undo a `take` of `size` bytes."""
        left = self._groups[group_id] - size
        if left:
            self._groups[group_id] = left
        else:
            del self._groups[group_id]
        self.held -= size

    def resize(self, before: int, after: int) -> None:
        """Change a holder that belongs to no group from `before` to `after` bytes; raises `SyncError`."""
        if after > before and not self._fits(before, after - before):
            raise _too_much("Too much of what clients sent is still waiting")
        self.held += after - before

    def _fits(self, before: int, size: int) -> bool:
        """Whether a holder of `before` bytes may take `size` more; always, if it is the only holder."""
        reserve = 0 if before + size <= SMALL_BYTES else self._total // RESERVED_PART
        return self.held <= before or self.held + size <= self._total - reserve


def _too_much(message: str) -> SyncError:
    return overloaded(f"{message}; send it again later")
