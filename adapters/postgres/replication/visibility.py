"""Which transactions a snapshot of the store has seen. Pure.

Rows that are read in the middle of the stream already hold what some transactions still to come have done. A
`Horizon` tells those apart by their numbers, so that their changes to the table that was read are passed over. From
`until` on, every transaction is one the snapshot has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_CYCLE = 1 << 32


@dataclass(frozen=True, slots=True)
class Horizon:
    """A snapshot as `pg_current_snapshot` describes it, and the end of the log after it was taken."""

    xmax: int
    running: frozenset[int]
    until: int

    @classmethod
    def parse(cls, snapshot: str, until: int) -> Horizon:
        """From Postgres's text `xmin:xmax:running,…`."""
        _, xmax, running = snapshot.split(":")
        return cls(int(xmax), frozenset(int(xid) for xid in running.split(",") if xid), until)

    def has_seen(self, xid: int) -> bool:
        """Whether the snapshot shows what the transaction of this number (modulo 2^32) did, given that it committed."""
        full = self._full(xid)
        return full < self.xmax and full not in self.running

    def _full(self, xid: int) -> int:
        """The number nearest to the snapshot's: the server wraps the stream's around."""
        base = self.xmax - self.xmax % _CYCLE + xid
        return min((base - _CYCLE, base, base + _CYCLE), key=lambda full: abs(full - self.xmax))


@dataclass(frozen=True, slots=True)
class Move:
    """The transaction that last changed a table's definition, as long as a description to come may not know of it.

    A long transaction may have described the tables before this one committed, and commit after it. Once a description
    has seen this one, those still running then are `awaited`; when they are over, nobody is left who has not.
    """

    xid: int
    awaited: frozenset[int] | None = None

    def after(self, seen: Horizon) -> Move | None:
        """What is left of it behind a description of this snapshot; None if it need not be remembered."""
        if not seen.has_seen(self.xid):
            return self
        awaited = seen.running if self.awaited is None else self.awaited & seen.running
        return replace(self, awaited=awaited) if awaited else None
