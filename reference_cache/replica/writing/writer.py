"""Writes live transactions: rows, versions and change log entries, durable together.

The replicator is the only writer. Several upstream transactions may share one SQLite transaction: `begin` and `commit`
mark the upstream's, `flush` makes all of them durable, `rollback` undoes those since the last `flush`. Rows of several
upstream transactions may also share one call of SQLite, so a row that it refuses may raise only in `flush`.

    writer.begin("0a", "p")
    writer.rows("issue").insert({...}, ("id",))   # changes to rows, by table
    writer.change(AddColumn(...))                 # everything else
    writer.commit()
    writer.flush()                                # now readers see version 0a, and it survives a crash

Contract: version and rows are stored together, so a replica never holds half a transaction. After an exception, call
`rollback`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from protocol.messages import JsonMode
from reference_cache.replica.catalog import Effect
from reference_cache.replica.change_log import create_log_sql, drop_log_sql, drop_triggers_sql, log_name
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
from reference_cache.replica.writing.change_processor import ChangeProcessor
from reference_cache.replica.writing.table_rows import TableRows
from service_kit.private_files import private_database
from service_kit.sqlite import connect, quoted, use_wal

BUSY_SECONDS = 60.0


class ReplicaWriter(ChangeProcessor):
    """The one writer of a replica file.

    Invariant: after `flush` or `rollback` nothing is pending and `state` is what a new reader sees.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(connection, load_catalog(connection))
        self._path = path
        # Device and inode of the open file.
        self._identity = file_identity(path)
        # What a new reader sees; written by `flush`.
        self.state = read_state(connection)
        self.retention = LogRetention(connection)
        # The catalog as of the last `flush`, for `rollback`.
        self._saved = self.catalog.copy()
        # The schema of `catalog`; written when tables change their shape.
        self._schema = schema_of(self.catalog)
        # Table -> the last seq of its log before the open transaction; written at the first change of a table.
        self._touched: dict[str, int] = {}
        # Table -> "truncate" or "schema", for tables whose pipelines must be reset; emptied by `flush`.
        self._resets: dict[str, str] = {}
        # Version of the last `commit`.
        self._committed = self.state.version

    def begin(self, version: str, json_mode: JsonMode) -> None:
        """Begin an upstream transaction, and the SQLite transaction if none is open."""
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN IMMEDIATE")
        # Version and JSON mode of the open upstream transaction; written only here.
        self.version = version
        self.json_mode = json_mode  # see `version`

    def commit(self) -> None:
        """End an upstream transaction; the next `flush` makes it durable."""
        self._committed = self.version

    def flush(self) -> None:
        """Make the committed transactions durable and visible; waits for the disk. Raises `CannotApply`."""
        if not self.connection.in_transaction:
            return
        self.write_pending()
        self._note_commits()
        is_reshaped = self.catalog != self._saved
        if is_reshaped:
            save_catalog(self.connection, self.catalog)
        self.connection.execute(f"UPDATE {STATE} SET version = ?", (self._committed,))
        self.retention.forget(self.state.version)
        self.connection.execute("COMMIT")
        if is_reshaped:
            self._saved = self.catalog.copy()
        self.state = read_state(self.connection)

    def _note_commits(self) -> None:
        """Assign the new log entries to the version that readers see next.

        Transactions that become durable together share the last one's version: no reader sees a state in between.
        """
        entries: list[tuple[str, str, str, int | None, int | None]] = [
            (self._committed, kind, table, None, None) for table, kind in self._resets.items()
        ]
        for table, before in self._touched.items():
            last = self._log_end(table)
            if last > before:
                entries.append((self._committed, "rows", table, before + 1, last))
                self.retention.logged += last - before
        sql = f'INSERT INTO {COMMITS} (version, kind, "table", first, last) VALUES (?, ?, ?, ?, ?)'
        self.connection.executemany(sql, entries)
        self._touched.clear()
        self._resets.clear()

    def prune(self) -> None:
        """Delete log entries that were read, unless a transaction is open: then its `flush` does it."""
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN IMMEDIATE")
            self.flush()

    def rollback(self) -> None:
        """Undo everything since the last `flush`."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        # The tables of the replica; changed by schema changes, and restored here.
        self.catalog = self._saved.copy()
        self._schema = schema_of(self.catalog)
        self.reset_pending()
        self.retention.recount()
        self._touched.clear()
        self._resets.clear()
        self._committed = self.state.version

    @property
    def is_in_place(self) -> bool:
        """Whether the path still names the open file; False once the file was deleted or replaced."""
        return file_identity(self._path) == self._identity

    def close(self) -> None:
        """Close the file; unflushed changes are lost."""
        self.connection.close()

    def insert_sql(self, rows: TableRows) -> str:
        self._touch(rows.name)
        return rows.insert_sql

    def before_lookup(self, table: str) -> None:
        self._touch(table)

    def truncate(self, table: str) -> None:
        self._touched.pop(table, None)
        self.execute(drop_triggers_sql(table))
        self.connection.execute(f"DELETE FROM {quoted(table)}")
        self._resets[table] = "truncate"
        if table in self._schema.tables:
            self.execute(create_log_sql(self._schema.tables[table])[1:])

    def take_effect(self, effect: Effect) -> None:
        for table in effect.tables:
            self._touched.pop(table, None)
            self._resets[table] = "schema"
            self.execute(drop_log_sql(table))
            self.retention.drop_table(table)
        self.execute(effect.statements)
        self.rewrite(effect.rewritten)
        self._schema = schema_of(self.catalog)
        for table in effect.tables:
            if table in self._schema.tables:
                self.execute(create_log_sql(self._schema.tables[table]))

    def _touch(self, table: str) -> None:
        if table not in self._touched and table in self._schema.tables:
            self._touched[table] = self._log_end(table)

    def _log_end(self, table: str) -> int:
        row = self.connection.execute(f"SELECT max(seq) FROM {quoted(log_name(table))}").fetchone()
        return int(row[0] or 0)


def open_writer(path: Path, origin: Origin) -> ReplicaWriter:
    """Open a complete replica for writing; raises `UnusableReplica` and changes nothing if it is of another app."""
    connection = _connect(path)
    try:
        check_origin(connection, origin)
        return ReplicaWriter(_tuned(connection), path)
    except BaseException:
        connection.close()
        raise


def connect_writer(path: Path) -> sqlite3.Connection:
    """A connection for durable writes, while others read."""
    return _tuned(_connect(path))


def _connect(path: Path) -> sqlite3.Connection:
    private_database(path)
    return connect(path, busy_seconds=BUSY_SECONDS, cached_statements=512)


def _tuned(connection: sqlite3.Connection) -> sqlite3.Connection:
    use_wal(connection, "FULL")
    connection.execute("PRAGMA recursive_triggers = ON")  # so that a replaced row is logged as removed
    connection.execute("PRAGMA cache_size = -65536")
    return connection
