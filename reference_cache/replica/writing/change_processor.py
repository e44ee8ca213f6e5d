"""Applies changes to the tables of a replica: the common part of live transactions and initial syncs.

Zero's change-processor. Rows are collected per table and passed to SQLite many at a time. Any other change first writes
the pending rows, so the order of the stream is kept. There are two subclasses: `writer` logs changes for readers;
`initial_load` does not, and creates indexes last.

Contract: a change that does not fit the replica raises `CannotApply`; the caller must then roll back.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from protocol.changes import Backfill, BackfillChange, BackfillCompleted, SchemaChange, Truncate
from protocol.messages import JsonMode
from protocol.specs import VERSION_COLUMN, JsonObject
from reference_cache.replica.catalog import Catalog, Effect
from reference_cache.replica.errors import CannotApply
from reference_cache.replica.writing.backfill import StreamedRows, backfilled_rows
from reference_cache.replica.writing.table_rows import UNSUITABLE, KeyColumns, Parameters, TableRows
from service_kit.sqlite import quoted

BATCH_ROWS = 1000
"""Rows passed to SQLite in one `executemany`."""


class RowSink:
    """Takes the row changes of one table. Valid until a schema change or a rollback; then ask `rows` again."""

    __slots__ = ("_processor", "_rows", "_streamed")

    def __init__(self, processor: ChangeProcessor, rows: TableRows) -> None:
        self._processor = processor
        self._rows = rows
        self._streamed = StreamedRows(processor.connection, rows) if rows.table.unfilled else None

    def insert(self, new: JsonObject, columns: KeyColumns) -> None:
        """Insert a whole row; it replaces any row that shares a unique key with it."""
        processor = self._processor
        processor.put(self._rows, [self._rows.insert(new, processor.version)])
        if self._streamed is not None:
            self._streamed.record_values(new, columns, processor.version)

    def insert_all(self, rows: Sequence[JsonObject], columns: KeyColumns) -> None:
        """`insert` for many rows."""
        if self._streamed is not None:
            for row in rows:
                self.insert(row, columns)
        elif not self._processor.append(self._rows, rows):
            self._processor.put(self._rows, self._rows.insert_all(rows, self._processor.version))

    def update(self, key: JsonObject | None, new: JsonObject, columns: KeyColumns) -> None:
        """Update the row with the key of `key` (of `new` if that is None); inserts `new` if there is no such row."""
        rows, processor = self._rows, self._processor
        sql, parameters = rows.update(key, new, columns)
        where = rows.key_values(new if key is None else key, columns)
        if self._streamed is not None:
            if key is not None:
                self._streamed.record_deletion(key, columns, processor.version)
            self._streamed.record_values(new, columns, processor.version)
        if not processor.run(rows.name, sql, (*parameters, processor.version, *where)):
            processor.put(rows, [rows.insert(new, processor.version)])

    def delete(self, key: JsonObject, columns: KeyColumns) -> None:
        """Delete the row of `key`, if it exists."""
        self._processor.run(self._rows.name, self._rows.delete_sql(columns), self._rows.key_values(key, columns))
        if self._streamed is not None:
            self._streamed.record_deletion(key, columns, self._processor.version)

    def backfill(self, change: Backfill) -> None:
        """Set backfilled values, except where the stream has brought newer ones."""
        streamed, key = self._streamed, change.relation.row_key.columns
        if streamed is None or streamed.was_truncated_after(change.watermark):
            return
        for row in backfilled_rows(change):
            settable = streamed.fillable(row, change)
            if settable:
                self._fill({name: row[name] for name in (*key, *settable)}, key)

    def _fill(self, values: JsonObject, key: tuple[str, ...]) -> None:
        rows, processor = self._rows, self._processor
        sql, parameters = rows.update(None, values, key)
        if not processor.run(rows.name, sql, (*parameters, processor.version, *rows.key_values(values, key))):
            processor.put(rows, [rows.insert(values, processor.version)])


class ChangeProcessor(ABC):
    """Writes changes in the connection's open transaction. Invariant: all pending rows are of one table.

    Used by one thread at a time.
    """

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog) -> None:
        self.connection = connection
        # Changed in place by schema changes; replaced by `ReplicaWriter.rollback`.
        self.catalog = catalog
        # Watermark and JSON mode of the current upstream transaction; set by the subclasses' `begin`.
        self.version = ""
        self.json_mode: JsonMode = "p"
        # Cleared when tables change their shape and after a rollback.
        self._sinks: dict[tuple[str, JsonMode], RowSink] = {}
        # Parameters of inserts that SQLite does not have yet; written by `put`, emptied by `write_pending`.
        self._pending: list[Parameters] = []
        # The table of `_pending`; None if there are none.
        self._pending_rows: TableRows | None = None

    def rows(self, table: str) -> RowSink:
        """The sink for row changes of a table; raises `CannotApply` for an unknown table."""
        sink = self._sinks.get((table, self.json_mode))
        if sink is None:
            sink = self._sinks[table, self.json_mode] = RowSink(self, self._table_rows(table))
        return sink

    def _table_rows(self, table: str) -> TableRows:
        stored = self.catalog.table(table)
        keys = self.catalog.keys_of(table)
        return TableRows(stored, self.json_mode, keys[0] if keys else None)

    def put(self, rows: TableRows, parameters: list[Parameters]) -> None:
        """Add rows to insert to the pending ones; writes those first if they are of another table or too many."""
        if self._pending_rows is not rows or len(self._pending) >= BATCH_ROWS:
            self.write_pending()
            self._pending_rows = rows
        self._pending += parameters

    def append(self, rows: TableRows, news: Sequence[JsonObject]) -> bool:
        """Write rows in a faster way than `put`; returns False if there is none, and nothing was written."""
        return False

    def run(self, table: str, sql: str, parameters: Parameters) -> int:
        """Write the pending rows, then run a statement on a table; returns how many rows it changed."""
        self.write_pending()
        self.before_lookup(table)
        try:
            return self.connection.execute(sql, parameters).rowcount
        except (sqlite3.Error, OverflowError) as error:
            raise CannotApply(f"SQLite refuses a change to table {table!r}: {error}") from error

    def write_pending(self) -> None:
        """Pass the pending rows to SQLite."""
        rows, pending = self._pending_rows, self._pending
        if rows is None:
            return
        self._pending_rows, self._pending = None, []
        sql = self.insert_sql(rows)
        try:
            self._insert_all(sql, rows, pending)
        except (sqlite3.Error, OverflowError) as error:
            raise CannotApply(f"SQLite refuses a row of table {rows.name!r}: {error}") from error

    def _insert_all(self, sql: str, rows: TableRows, pending: list[Parameters]) -> None:
        """Insert rows. If the driver refuses a value, roll back and insert all of them again, converted by `careful`.

        Converting only then keeps the usual case fast.
        """
        if len(pending) > 1:
            self.connection.execute("SAVEPOINT rows")
        try:
            self.connection.executemany(sql, pending)
        except UNSUITABLE:
            if len(pending) > 1:
                self.connection.execute("ROLLBACK TO rows")
            self.connection.executemany(sql, list(map(rows.careful, pending)))
        if len(pending) > 1:
            self.connection.execute("RELEASE rows")

    def change(self, change: SchemaChange | BackfillChange | Truncate) -> None:
        """Apply a truncate, backfill or schema change."""
        self.write_pending()
        match change:
            case Truncate():
                for relation in change.relations:
                    self._truncate(relation.replica_name)
            case Backfill():
                self.rows(change.relation.replica_name).backfill(change)
            case BackfillCompleted():
                self._complete_backfill(change)
            case _:
                self._reshape(self.catalog.apply(change))

    def _truncate(self, name: str) -> None:
        table = self.catalog.table(name)
        self.truncate(table.name)
        if table.unfilled:
            StreamedRows(self.connection, self._table_rows(name)).record_truncate(self.version)

    def _complete_backfill(self, change: BackfillCompleted) -> None:
        table = change.relation.replica_name
        effect = self.catalog.filled(table, (*change.relation.row_key.columns, *change.columns))
        if not self.catalog.table(table).unfilled:
            StreamedRows(self.connection, self._table_rows(table)).forget()
        self._reshape(effect)

    def _reshape(self, effect: Effect) -> None:
        self.take_effect(effect)
        self._sinks.clear()

    def execute(self, statements: Iterable[str]) -> None:
        """Run DDL statements; raises `CannotApply`."""
        for statement in statements:
            try:
                self.connection.execute(statement)
            except sqlite3.Error as error:
                raise CannotApply(f"SQLite refuses a schema change: {error} ({statement})") from error

    def rewrite(self, tables: Iterable[str]) -> None:
        """Set the version of all rows of these tables to the current one, so that clients get them again."""
        for table in tables:
            self.connection.execute(f"UPDATE {quoted(table)} SET {quoted(VERSION_COLUMN)} = ?", (self.version,))

    def reset_pending(self) -> None:
        """Drop pending rows after a rollback."""
        self._pending_rows, self._pending = None, []
        self._sinks.clear()

    @abstractmethod
    def insert_sql(self, rows: TableRows) -> str:
        """The INSERT statement for the table in its current state; called immediately before it is executed."""

    @abstractmethod
    def before_lookup(self, table: str) -> None:
        """Called before a row of the table is changed by its key."""

    @abstractmethod
    def truncate(self, table: str) -> None:
        """Delete all rows of a table."""

    @abstractmethod
    def take_effect(self, effect: Effect) -> None:
        """Execute the effect of a schema change."""
