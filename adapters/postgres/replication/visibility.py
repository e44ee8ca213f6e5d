"""Which transactions a snapshot of the database contains. Pure.

Rows that are read in the middle of the stream already contain transactions that the stream has yet to bring. A
`Horizon` identifies those by their numbers, so that their changes of that table are skipped. From the LSN `until` on,
no transaction is contained in the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_CYCLE = 1 << 32


@dataclass(frozen=True, slots=True)
class Horizon:
    """A snapshot as `pg_current_snapshot` describes it, and the end of the WAL after it was taken."""

    xmax: int
    running: frozenset[int]
    until: int

    @classmethod
    def parse(cls, snapshot: str, until: int) -> Horizon:
        """From Postgres's text `xmin:xmax:running,…`."""
        _, xmax, running = snapshot.split(":")
        return cls(int(xmax), frozenset(int(xid) for xid in running.split(",") if xid), until)

    def has_seen(self, xid: int) -> bool:
        """Whether the snapshot contains the transaction `xid` (modulo 2^32), provided that it has committed."""
        full = self._full(xid)
        return full < self.xmax and full not in self.running

    def _full(self, xid: int) -> int:
        """The full 64-bit number nearest to the snapshot's: the stream has only the lower 32 bits."""
        base = self.xmax - self.xmax % _CYCLE + xid
        return min((base - _CYCLE, base, base + _CYCLE), key=lambda full: abs(full - self.xmax))


@dataclass(frozen=True, slots=True)
class Redefinition:
    """The transaction that last changed a table's definition, while an outdated description of it may still come.

    A long transaction may describe the tables before `xid` commits, and commit after it. When the first description
    that contains `xid` arrives, the transactions that run at that moment are noted in `unfinished`. When all of them
    have ended, no outdated description can come any more.
    """

    xid: int
    unfinished: frozenset[int] | None = None

    def after(self, seen: Horizon) -> Redefinition | None:
        """What to remember after a description with this snapshot; None if nothing."""
        if not seen.has_seen(self.xid):
            return self
        unfinished = seen.running if self.unfinished is None else self.unfinished & seen.running
        return replace(self, unfinished=unfinished) if unfinished else None
