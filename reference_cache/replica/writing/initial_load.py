"""The initial sync: all tables and rows in one transaction, indexes last, then the log begins.

A first load goes into a file beside the replica's place, without waiting for the disk, and is made durable and moved
into place when it is complete; whatever happens before, there is no replica. A load that replaces a replica which has
readers goes into that file, in one transaction: they keep what they have until it is complete.

    load = load_beside(path, origin)  or  load_over(path, origin)
    load.begin("01", "p"); load.rows("issue").insert({...}, ("id",)); load.change(CreateIndex(...)); ...
    writer = load.finish()            # or load.abandon()

Contract: after `finish` the replica is complete, durable and at the load's version; after `abandon` it is as before.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from protocol.changes import Backfill, BackfillChange, CreateIndex, CreateTable, SchemaChange, Truncate
from protocol.messages import JsonMode
from protocol.specs import JsonObject
from reference_cache.replica.catalog import Catalog, Effect, StoredIndex, create_index_sql
from reference_cache.replica.change_log import log_statements
from reference_cache.replica.file_identity import remove_leftovers
from reference_cache.replica.schema import schema_of
from reference_cache.replica.stored_catalog import STATE, Origin, create_system_tables, save_catalog
from reference_cache.replica.writing.applying import Applying
from reference_cache.replica.writing.bulk_rows import BulkRows
from reference_cache.replica.writing.required import check_required_tables
from reference_cache.replica.writing.table_rows import UNSUITABLE, Parameters, TableRows
from reference_cache.replica.writing.writer import ReplicaWriter, connect_writer, open_writer
from service_kit.private_files import private_database
from service_kit.sqlite import connect, quoted

ANALYSIS_LIMIT = 1000
"""Rows per index that ANALYZE looks at; enough for estimates, and quick however large the table."""


class InitialLoad(Applying):
    """An initial sync under way.

    Invariant: tables in `_unsettled` have none of their indexes yet, so rows are appended; all others have all of them.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, staged: Path | None, origin: Origin) -> None:
        super().__init__(connection, Catalog())
        self.loaded = 0
        self._path = path
        self._staged = staged
        self._origin = origin
        self._unsettled: set[str] = set()
        self._bulk: dict[TableRows, BulkRows] = {}

    def begin(self, version: str, json_mode: JsonMode) -> None:
        """The transaction begins; what was in the file goes, once it is complete."""
        self.connection.execute("BEGIN IMMEDIATE")
        for (name,) in self.connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        ).fetchall():
            self.connection.execute(f"DROP TABLE {quoted(name)}")
        create_system_tables(self.connection, self._origin)
        self.version = version
        self.json_mode = json_mode

    def finish(self) -> ReplicaWriter:
        """Complete the replica, make it durable, and open it for what follows."""
        self.write_pending()
        self._settle_all()
        check_required_tables(schema_of(self.catalog), self._origin)
        self._begin_log()
        self.connection.execute("COMMIT")
        self.connection.execute(f"PRAGMA analysis_limit = {ANALYSIS_LIMIT}")
        self.connection.execute("ANALYZE")
        self.connection.close()
        if self._staged is not None:
            _make_durable(self._staged)
            self._staged.replace(self._path)
            _make_durable(self._path.parent)
        return open_writer(self._path, self._origin)

    def _begin_log(self) -> None:
        for table in schema_of(self.catalog).tables.values():
            self.execute(log_statements(table))
        save_catalog(self.connection, self.catalog)
        sql = f"UPDATE {STATE} SET replica_version = ?1, version = ?1, log_start = ?1"
        self.connection.execute(sql, (self.version,))

    def abandon(self) -> None:
        """Give up; the replica, if there was one, stays as it was."""
        self.connection.close()  # which takes the open transaction back
        if self._staged is not None:
            self._staged.unlink(missing_ok=True)

    def append(self, rows: TableRows, news: Sequence[JsonObject]) -> bool:
        if rows.name not in self._unsettled:
            return False
        bulk = self._bulk.get(rows)
        if bulk is None:
            bulk = self._bulk[rows] = BulkRows(rows.table, self.json_mode, self.version)
        values = bulk.values(news)
        if values is None:
            return False
        self.write_pending()
        self.connection.execute("SAVEPOINT rows")
        try:
            bulk.append(self.connection, values)
        except UNSUITABLE:
            self.connection.execute("ROLLBACK TO rows")
            return False
        finally:
            self.connection.execute("RELEASE rows")
        self.loaded += len(news)
        return True

    def put(self, rows: TableRows, parameters: list[Parameters]) -> None:
        super().put(rows, parameters)
        self.loaded += len(parameters)

    def insert_sql(self, rows: TableRows) -> str:
        return rows.append_sql if rows.name in self._unsettled else rows.insert_sql

    def before_lookup(self, table: str) -> None:
        if table in self._unsettled:
            self._settle(table)

    def truncate(self, table: str) -> None:
        self.connection.execute(f"DELETE FROM {quoted(table)}")

    def take_effect(self, effect: Effect) -> None:
        self.execute(effect.statements)

    def change(self, change: SchemaChange | BackfillChange | Truncate) -> None:
        match change:
            case CreateTable():
                super().change(change)
                self._unsettled.add(change.spec.replica_name)
            case CreateIndex() if change.spec.replica_table in self._unsettled:
                self.write_pending()
                self.catalog.apply(change)
                self._sinks.clear()
            case CreateIndex() | Truncate() | Backfill():
                super().change(change)
            case _:
                self.write_pending()
                self._settle_all()
                super().change(change)

    def _settle_all(self) -> None:
        for table in list(self._unsettled):
            self._settle(table)

    def _settle(self, table: str) -> None:
        """Make the table's indexes; from here on inserts replace."""
        self._unsettled.discard(table)
        for index in self.catalog.indexes_of(table):
            try:
                self.connection.execute(create_index_sql(index))
            except sqlite3.IntegrityError:
                self._keep_last(index)
                self.execute([create_index_sql(index)])

    def _keep_last(self, index: StoredIndex) -> None:
        """Of rows with the same key only the last stays, as if each had replaced the one before."""
        columns = ", ".join(map(quoted, index.columns))
        given = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in index.columns)
        latest = f"SELECT rowid AS id, max(rowid) OVER (PARTITION BY {columns}) AS last FROM {quoted(index.table)}"
        replaced = f"SELECT id FROM ({latest} WHERE {given}) WHERE id < last"
        self.connection.execute(f"DELETE FROM {quoted(index.table)} WHERE rowid IN ({replaced})")


def load_beside(path: Path, origin: Origin) -> InitialLoad:
    """A load for a replica that does not exist yet, or not any more."""
    staged = path.with_name(path.name + ".initial")
    staged.unlink(missing_ok=True)
    for each in (staged, path):
        remove_leftovers(each)
    private_database(staged)
    connection = connect(staged)
    connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA cache_size = -65536")
    return InitialLoad(connection, path, staged, origin)


def load_over(path: Path, origin: Origin) -> InitialLoad:
    """A load that replaces a replica which others may be reading."""
    return InitialLoad(connect_writer(path), path, None, origin)


def _make_durable(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
