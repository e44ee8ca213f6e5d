"""Loads an initial sync: all tables and rows in one transaction, then the indexes, then the change log's triggers.

A first load goes into a staging file, without waiting for the disk; when it is complete, the file is synced and renamed
to the replica's path. If anything fails before, there is no replica. A load that replaces a replica with readers goes
into that file in one transaction: readers keep their snapshot until it is complete.

    load = load_new(path, origin)  or  load_over(path, origin)
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
from protocol.fold.indexes import FoldedIndex
from protocol.messages import JsonMode
from protocol.rules.required_tables import required_tables
from protocol.specs import JsonObject
from reference_cache.replica.catalog import Catalog, Effect, create_index_sql
from reference_cache.replica.change_log import create_log_sql
from reference_cache.replica.errors import CannotApply
from reference_cache.replica.file_identity import remove_leftovers
from reference_cache.replica.schema import ReplicaSchema, schema_of
from reference_cache.replica.stored_catalog import STATE, Origin, create_system_tables, save_catalog
from reference_cache.replica.writing.bulk_rows import BulkRows
from reference_cache.replica.writing.change_processor import ChangeProcessor
from reference_cache.replica.writing.table_rows import UNSUITABLE, Parameters, TableRows
from reference_cache.replica.writing.writer import ReplicaWriter, connect_writer, open_writer
from service_kit.private_files import private_database
from service_kit.sqlite import connect, quoted

ANALYSIS_LIMIT = 1000
"""Rows per index that ANALYZE reads: enough for estimates, and fast for tables of any size."""


class InitialLoad(ChangeProcessor):
    """An initial sync in progress.

    Invariant: tables in `_unindexed` have none of their indexes yet, so rows are appended; all others have all of them.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, staged: Path | None, origin: Origin) -> None:
        super().__init__(connection, Catalog())
        # Rows received so far, for progress reports.
        self.loaded = 0
        self._path = path
        # The staging file; None for a load into the replica itself.
        self._staged = staged
        self._origin = origin
        # Tables without their indexes: added when created, removed when a row must be found by its key, or at the end.
        self._unindexed: set[str] = set()
        # Filled on demand by `append`.
        self._bulk: dict[TableRows, BulkRows] = {}

    def begin(self, version: str, json_mode: JsonMode) -> None:
        """Begin the transaction and drop what is in the file; readers see that only when it commits."""
        self.connection.execute("BEGIN IMMEDIATE")
        for (name,) in self.connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        ).fetchall():
            self.connection.execute(f"DROP TABLE {quoted(name)}")
        create_system_tables(self.connection, self._origin)
        # Version and JSON mode of the snapshot, used for all rows of the load; written only here.
        self.version = version
        self.json_mode = json_mode  # see `version`

    def finish(self) -> ReplicaWriter:
        """Complete the replica, make it durable, and open it for live transactions. Raises `CannotApply`."""
        self.write_pending()
        self._create_all_indexes()
        check_required_tables(schema_of(self.catalog), self._origin)
        self._begin_log()
        self.connection.execute("COMMIT")
        self.connection.execute(f"PRAGMA analysis_limit = {ANALYSIS_LIMIT}")
        self.connection.execute("ANALYZE main")
        self.connection.close()
        if self._staged is not None:
            _make_durable(self._staged)
            self._staged.replace(self._path)
            _make_durable(self._path.parent)
        return open_writer(self._path, self._origin)

    def _begin_log(self) -> None:
        for table in schema_of(self.catalog).tables.values():
            self.execute(create_log_sql(table))
        save_catalog(self.connection, self.catalog)
        sql = f"UPDATE {STATE} SET replica_version = ?1, version = ?1, log_start = ?1"
        self.connection.execute(sql, (self.version,))

    def abandon(self) -> None:
        """Discard the load; a replica that existed before stays unchanged."""
        self.connection.close()  # rolls the open transaction back
        if self._staged is not None:
            self._staged.unlink(missing_ok=True)

    def append(self, rows: TableRows, news: Sequence[JsonObject]) -> bool:
        if rows.name not in self._unindexed:
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
        return rows.append_sql if rows.name in self._unindexed else rows.insert_sql

    def before_lookup(self, table: str) -> None:
        if table in self._unindexed:
            self._create_indexes(table)

    def truncate(self, table: str) -> None:
        self.connection.execute(f"DELETE FROM {quoted(table)}")

    def take_effect(self, effect: Effect) -> None:
        self.execute(effect.statements)

    def change(self, change: SchemaChange | BackfillChange | Truncate) -> None:
        match change:
            case CreateTable():
                super().change(change)
                self._unindexed.add(change.spec.replica_name)
            case CreateIndex() if change.spec.replica_table in self._unindexed:
                self.write_pending()
                self.catalog.apply(change)
                self._sinks.clear()
            case CreateIndex() | Truncate() | Backfill():
                super().change(change)
            case _:
                self.write_pending()
                self._create_all_indexes()
                super().change(change)

    def _create_all_indexes(self) -> None:
        for table in list(self._unindexed):
            self._create_indexes(table)

    def _create_indexes(self, table: str) -> None:
        """Create the table's indexes; from now on inserts replace rows with the same key."""
        self._unindexed.discard(table)
        for index in self.catalog.indexes.of(table):
            try:
                self.connection.execute(create_index_sql(index))
            except sqlite3.IntegrityError:
                self._keep_last(index)
                self.execute([create_index_sql(index)])

    def _keep_last(self, index: FoldedIndex) -> None:
        """Keep only the last of the rows with the same key, as if each had replaced the one before."""
        columns = ", ".join(map(quoted, index.columns))
        not_null = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in index.columns)
        latest = f"SELECT rowid AS id, max(rowid) OVER (PARTITION BY {columns}) AS last FROM {quoted(index.table)}"
        replaced = f"SELECT id FROM ({latest} WHERE {not_null}) WHERE id < last"
        self.connection.execute(f"DELETE FROM {quoted(index.table)} WHERE rowid IN ({replaced})")


def load_new(path: Path, origin: Origin) -> InitialLoad:
    """A load for a replica that does not exist; removes leftovers of an earlier one."""
    staged = path.with_name(path.name + ".initial")
    staged.unlink(missing_ok=True)
    for each in (staged, path):
        remove_leftovers(each)
    private_database(staged)
    connection = connect(staged)
    # No durability until `finish`: after a crash the staging file is deleted, never opened.
    connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA cache_size = -65536")
    return InitialLoad(connection, path, staged, origin)


def load_over(path: Path, origin: Origin) -> InitialLoad:
    """A load that replaces a replica with readers."""
    return InitialLoad(connect_writer(path), path, None, origin)


def check_required_tables(schema: ReplicaSchema, origin: Origin) -> None:
    """Raise `CannotApply` for the first of Zero's own tables or columns that is missing or of another type."""
    for name, columns in required_tables(origin.app_id, origin.shard_num).items():
        table = schema.tables.get(name)
        if table is None:
            raise CannotApply(f"the initial sync has no table {name!r} with a key; the source must send it")
        for column, type in columns.items():
            sent = table.columns.get(column)
            if sent is None or sent.type != type:
                raise CannotApply(f"{name}.{column} must be a {type}; the source sent {sent or 'no such column'}")


def _make_durable(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
