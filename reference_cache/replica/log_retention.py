"""How long log entries are kept: until the reader has reported them as read, within a bound.

The reader says how far it has read; the entries up to there go with the next transaction that is written anyway. As
long as nobody reads, only the newest entries are kept. A reader that is slow is not cut off: `is_full` tells the
replicator to take in no more until the reader has caught up.
"""

from __future__ import annotations

import sqlite3

from reference_cache.replica.change_log import log_name
from reference_cache.replica.stored_catalog import COMMITS, STATE
from service_kit.sqlite import quoted

MAX_LOGGED = 500_000
"""Entries, each one changed row, that may wait for the reader."""

WORTH_FORGETTING = 1_000
"""Fewer entries than this are not worth a delete."""


class LogRetention:
    """What is in the log. `logged` counts its entries; those up to `read` may go."""

    def __init__(self, connection: sqlite3.Connection, max_logged: int = MAX_LOGGED) -> None:
        self.logged = 0
        self.read: str | None = None
        self._connection = connection
        self.max_logged = max_logged
        self.recount()

    @property
    def is_full(self) -> bool:
        """Whether the reader must catch up before more is taken in."""
        return self.read is not None and self.logged >= self.max_logged

    def forget_changes(self, upto: str) -> None:
        """The reader needs nothing up to and including this version any more."""
        self.read = upto if self.read is None else max(self.read, upto)

    def forget(self, durable: str) -> None:
        """Delete what may go, in the open transaction; `durable` is the last version that readers can see."""
        upto = self.read
        if upto is None and self.logged >= self.max_logged:
            upto = durable
        if upto is not None and self.logged >= WORTH_FORGETTING:
            self._delete(min(upto, durable))

    def _delete(self, upto: str) -> None:
        sql = f'SELECT "table", max(last) FROM {COMMITS} WHERE version <= ? AND kind = \'rows\' GROUP BY "table"'
        for table, last in self._connection.execute(sql, (upto,)).fetchall():
            deleted = self._connection.execute(f"DELETE FROM {quoted(log_name(table))} WHERE seq <= ?", (last,))
            self.logged -= deleted.rowcount
        self._connection.execute(f"DELETE FROM {COMMITS} WHERE version <= ?", (upto,))
        self._connection.execute(f"UPDATE {STATE} SET log_start = max(log_start, ?)", (upto,))

    def drop_table(self, table: str) -> None:
        """The entries of a table were dropped with its log."""
        self._connection.execute(f"DELETE FROM {COMMITS} WHERE \"table\" = ? AND kind = 'rows'", (table,))
        self.recount()

    def recount(self) -> None:
        """Count the entries anew, when the replica is opened and after a rollback."""
        sql = f"SELECT coalesce(sum(last - first + 1), 0) FROM {COMMITS} WHERE kind = 'rows'"
        self.logged = int(self._connection.execute(sql).fetchone()[0])
