"""Writing live transactions: rows, versions and log entries, durable together.

The replicator's half of the file; there is one writer. Upstream transactions may share one SQLite transaction: `begin`
and `commit` mark the upstream's, `flush` makes all of them durable at once and `rollback` takes back what was not.
Rows are handed to SQLite together too, whichever of them they belong to, and so one that it refuses may be told by the
`flush`.

    writer.begin("0a", "p")
    writer.rows("issue").insert({...}, ("id",))   # changes to rows, by table
    writer.change(AddColumn(...))                 # everything else
    writer.commit()
    writer.flush()                                # from here on readers see version 0a, and it survives a crash

Contract: version and rows are stored together, so a replica never holds half a transaction. After an exception call
`rollback`, which goes back to the last `flush`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from protocol.messages import JsonMode
from reference_cache.replica.catalog import Effect
from reference_cache.replica.change_log import log_name, log_statements, quiet_statements, unlog_statements
from reference_cache.replica.file_identity import file_identity
from reference_cache.replica.log_retention import LogRetention
from reference_cache.replica.schema import schema_of
from reference_cache.replica.stored_catalog import (
    COMMITS,
    STATE,
    Origin,
    check_origin,
    load_catalog,
    read_state,
    save_catalog,
)
from reference_cache.replica.writing.applying import Applying
from reference_cache.replica.writing.table_rows import TableRows
from service_kit.private_files import private_database
from service_kit.sqlite import connect, quoted, use_wal

BUSY_SECONDS = 60.0


class ReplicaWriter(Applying):
    """The one writer of a replica file.

    Invariant: after `flush` or `rollback` nothing is pending and `state` is what a new reader sees.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(connection, load_catalog(connection))
        self._path = path
        self._identity = file_identity(path)  # of the file that is open
        self.state = read_state(connection)
        self.retention = LogRetention(connection)
        self._saved = self.catalog.copy()
        self._synced = schema_of(self.catalog)
        self._touched: dict[str, int] = {}  # table -> the last log entry from before
        self._breaks: dict[str, str] = {}
        self._committed = self.state.version

    def begin(self, version: str, json_mode: JsonMode) -> None:
        """An upstream transaction begins."""
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN IMMEDIATE")
        self.version = version
        self.json_mode = json_mode

    def commit(self) -> None:
        """The upstream transaction is complete; it becomes durable with the next `flush`."""
        self._committed = self.version

    def flush(self) -> None:
        """Make the committed transactions durable and visible, all at once."""
        if not self.connection.in_transaction:
            return
        self.write_pending()
        self._note_commits()
        if self.catalog != self._saved:
            save_catalog(self.connection, self.catalog)
        self.connection.execute(f"UPDATE {STATE} SET version = ?", (self._committed,))
        self.retention.forget(self.state.version)
        self.connection.execute("COMMIT")
        self._saved = self.catalog.copy()
        self.state = read_state(self.connection)

    def _note_commits(self) -> None:
        """Note which log entries belong to the version that readers will see next; they see none in between."""
        entries: list[tuple[str, str, str, int | None, int | None]] = [
            (self._committed, kind, table, None, None) for table, kind in self._breaks.items()
        ]
        for table, before in self._touched.items():
            last = self._log_end(table)
            if last > before:
                entries.append((self._committed, "rows", table, before + 1, last))
                self.retention.logged += last - before
        sql = f'INSERT INTO {COMMITS} (version, kind, "table", first, last) VALUES (?, ?, ?, ?, ?)'
        self.connection.executemany(sql, entries)
        self._touched.clear()
        self._breaks.clear()

    def prune(self) -> None:
        """Forget now what the reader has read, unless a transaction is under way, which will do so at its end."""
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN IMMEDIATE")
            self.flush()

    def rollback(self) -> None:
        """Take back everything since the last `flush`."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self.catalog = self._saved.copy()
        self._synced = schema_of(self.catalog)
        self.reset_pending()
        self.retention.recount()
        self._touched.clear()
        self._breaks.clear()
        self._committed = self.state.version

    @property
    def is_in_place(self) -> bool:
        """Whether what is open is what is found under its name; not once somebody has deleted or replaced it."""
        return file_identity(self._path) == self._identity

    def close(self) -> None:
        """Close the file; what was not flushed is lost."""
        self.connection.close()

    def insert_sql(self, rows: TableRows) -> str:
        self._touch(rows.name)
        return rows.insert_sql

    def before_lookup(self, table: str) -> None:
        self._touch(table)

    def truncate(self, table: str) -> None:
        self._touched.pop(table, None)
        self.execute(quiet_statements(table))
        self.connection.execute(f"DELETE FROM {quoted(table)}")
        self._breaks[table] = "truncate"
        if table in self._synced.tables:
            self.execute(log_statements(self._synced.tables[table])[1:])

    def take_effect(self, effect: Effect) -> None:
        for table in effect.tables:
            self._touched.pop(table, None)
            self._breaks[table] = "schema"
            self.execute(unlog_statements(table))
            self.retention.drop_table(table)
        self.execute(effect.statements)
        self.rewrite(effect.rewritten)
        self._synced = schema_of(self.catalog)
        for table in effect.tables:
            if table in self._synced.tables:
                self.execute(log_statements(self._synced.tables[table]))

    def _touch(self, table: str) -> None:
        if table not in self._touched and table in self._synced.tables:
            self._touched[table] = self._log_end(table)

    def _log_end(self, table: str) -> int:
        found = self.connection.execute(f"SELECT max(seq) FROM {quoted(log_name(table))}").fetchone()
        return int(found[0] or 0)


def open_writer(path: Path, origin: Origin) -> ReplicaWriter:
    """Open a complete replica for writing; `UnusableReplica`, and nothing changed, if it is not one of this app's."""
    connection = _connect(path)
    try:
        check_origin(connection, origin)
        return ReplicaWriter(_tuned(connection), path)
    except BaseException:
        connection.close()
        raise


def connect_writer(path: Path) -> sqlite3.Connection:
    """A connection that writes durably, beside readers."""
    return _tuned(_connect(path))


def _connect(path: Path) -> sqlite3.Connection:
    private_database(path)
    return connect(path, busy_seconds=BUSY_SECONDS, cached_statements=512)


def _tuned(connection: sqlite3.Connection) -> sqlite3.Connection:
    use_wal(connection, "FULL")
    connection.execute("PRAGMA recursive_triggers = ON")  # so that a replaced row is logged as removed
    connection.execute("PRAGMA cache_size = -65536")
    return connection
