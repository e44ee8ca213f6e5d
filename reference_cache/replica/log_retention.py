"""How long change log entries are kept: until the reader has reported them as read.

Entries that were read are deleted in the next transaction that is written anyway. Without a reader only the newest
entries are kept. A slow reader loses nothing: while `is_full`, the replicator applies no more transactions.
"""

from __future__ import annotations

import sqlite3

from reference_cache.replica.change_log import log_name
from reference_cache.replica.stored_catalog import COMMITS, STATE
from service_kit.sqlite import quoted

MAX_LOGGED = 500_000
"""How many unread entries (changed rows) the log may hold."""

MIN_DELETE = 1_000
"""Fewer entries than this are not deleted: it would not be worth the statements."""


class LogRetention:
    """Counts the log's entries and deletes those that were read. Used by the writer's thread."""

    def __init__(self, connection: sqlite3.Connection, max_logged: int = MAX_LOGGED) -> None:
        # Entries in the log, also those of the open transaction; written here and by `ReplicaWriter`.
        self.logged = 0
        # The newest version that the reader has read; None while there is no reader.
        self.read: str | None = None
        self._connection = connection
        self.max_logged = max_logged
        self.recount()

    @property
    def is_full(self) -> bool:
        """Whether the reader must catch up before more transactions are applied."""
        return self.read is not None and self.logged >= self.max_logged

    def forget_changes(self, upto: str) -> None:
        """Note that the reader has read up to and including this version."""
        self.read = upto if self.read is None else max(self.read, upto)

    def forget(self, durable: str) -> None:
        """Delete read entries, in the open transaction; `durable` is the newest version that readers can see."""
        upto = self.read
        if upto is None and self.logged >= self.max_logged:
            upto = durable
        if upto is not None and self.logged >= MIN_DELETE:
            self._delete(min(upto, durable))

    def _delete(self, upto: str) -> None:
        sql = f'SELECT "table", max(last) FROM {COMMITS} WHERE version <= ? AND kind = \'rows\' GROUP BY "table"'
        for table, last in self._connection.execute(sql, (upto,)).fetchall():
            deleted = self._connection.execute(f"DELETE FROM {quoted(log_name(table))} WHERE seq <= ?", (last,))
            self.logged -= deleted.rowcount
        self._connection.execute(f"DELETE FROM {COMMITS} WHERE version <= ?", (upto,))
        self._connection.execute(f"UPDATE {STATE} SET log_start = max(log_start, ?)", (upto,))

    def drop_table(self, table: str) -> None:
        """Note that the log table of a table was dropped."""
        self._connection.execute(f"DELETE FROM {COMMITS} WHERE \"table\" = ? AND kind = 'rows'", (table,))
        self.recount()

    def recount(self) -> None:
        """Count the entries in the file, when the replica is opened and after a rollback."""
        sql = f"SELECT coalesce(sum(last - first + 1), 0) FROM {COMMITS} WHERE kind = 'rows'"
        self.logged = int(self._connection.execute(sql).fetchone()[0])
