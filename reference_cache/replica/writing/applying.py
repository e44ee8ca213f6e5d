"""Applying changes to the tables of a replica: what live transactions and initial syncs have in common.

Rows are collected per table and handed to SQLite many at a time; a change of any other kind first writes what is
pending, so the order of the stream is kept. What differs is left to two subclasses: `writer` keeps a log for readers,
`initial_load` has none and makes indexes last.

Contract: a change that does not fit raises `CannotApply`; the owner then rolls its transaction back.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from protocol.changes import Backfill, BackfillChange, BackfillCompleted, SchemaChange, Truncate
from protocol.messages import JsonMode
from protocol.specs import JsonObject
from reference_cache.replica.catalog import VERSION_COLUMN, Catalog, Effect
from reference_cache.replica.errors import CannotApply
from reference_cache.replica.writing.backfilling import FreshRows, backfilled_rows
from reference_cache.replica.writing.table_rows import UNSUITABLE, KeyColumns, Parameters, TableRows
from service_kit.sqlite import quoted

BATCH_ROWS = 1000
"""Rows that go to SQLite in one call."""


class RowSink:
    """Where the changes to rows of one table go, for one transaction."""

    __slots__ = ("_applying", "_fresh", "_rows")

    def __init__(self, applying: Applying, rows: TableRows) -> None:
        self._applying = applying
        self._rows = rows
        self._fresh = FreshRows(applying.connection, rows) if rows.table.unfilled else None

    def insert(self, new: JsonObject, columns: KeyColumns) -> None:
        """A whole row; replaces any that shares a unique key with it."""
        applying = self._applying
        applying.put(self._rows, [self._rows.insert(new, applying.version)])
        if self._fresh is not None:
            self._fresh.note_values(new, columns, applying.version)

    def insert_all(self, rows: Sequence[JsonObject], columns: KeyColumns) -> None:
        """As `insert`, for many rows."""
        if self._fresh is not None:
            for row in rows:
                self.insert(row, columns)
        elif not self._applying.append(self._rows, rows):
            self._applying.put(self._rows, self._rows.insert_all(rows, self._applying.version))

    def update(self, key: JsonObject | None, new: JsonObject, columns: KeyColumns) -> None:
        """New values for the row of `key` (or, if that is None, of the key in `new`); inserts it if it is not there."""
        rows, applying = self._rows, self._applying
        sql, parameters = rows.update(key, new, columns)
        where = rows.key_values(new if key is None else key, columns)
        if self._fresh is not None:
            if key is not None:
                self._fresh.note_deletion(key, columns, applying.version)
            self._fresh.note_values(new, columns, applying.version)
        if not applying.run(rows.name, sql, (*parameters, applying.version, *where)):
            applying.put(rows, [rows.insert(new, applying.version)])

    def delete(self, key: JsonObject, columns: KeyColumns) -> None:
        """Remove the row of `key`, if it is there."""
        self._applying.run(self._rows.name, self._rows.delete_sql(columns), self._rows.key_values(key, columns))
        if self._fresh is not None:
            self._fresh.note_deletion(key, columns, self._applying.version)

    def backfill(self, change: Backfill) -> None:
        """Late values, as far as the stream has not brought newer ones."""
        fresh, key = self._fresh, change.relation.row_key.columns
        if fresh is None or fresh.was_emptied_after(change.watermark):
            return
        for row in backfilled_rows(change):
            settable = fresh.fillable(row, change)
            if settable:
                self._fill({name: row[name] for name in (*key, *settable)}, key)

    def _fill(self, values: JsonObject, key: tuple[str, ...]) -> None:
        rows, applying = self._rows, self._applying
        sql, parameters = rows.update(None, values, key)
        if not applying.run(rows.name, sql, (*parameters, applying.version, *rows.key_values(values, key))):
            applying.put(rows, [rows.insert(values, applying.version)])


class Applying(ABC):
    """Changes on their way into SQLite, within its open transaction. Invariant: pending rows are of one table."""

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog) -> None:
        self.connection = connection
        self.catalog = catalog
        self.version = ""
        self.json_mode: JsonMode = "p"
        self._sinks: dict[tuple[str, JsonMode], RowSink] = {}
        self._pending: list[Parameters] = []
        self._pending_rows: TableRows | None = None

    def rows(self, table: str) -> RowSink:
        """Where the rows of a table go, in this transaction."""
        sink = self._sinks.get((table, self.json_mode))
        if sink is None:
            sink = self._sinks[table, self.json_mode] = RowSink(self, self._table_rows(table))
        return sink

    def _table_rows(self, table: str) -> TableRows:
        stored = self.catalog.table(table)
        keys = self.catalog.keys_of(table)
        return TableRows(stored, self.json_mode, keys[0] if keys else None)

    def put(self, rows: TableRows, parameters: list[Parameters]) -> None:
        """Note rows to insert; they are written with others of their table."""
        if self._pending_rows is not rows or len(self._pending) >= BATCH_ROWS:
            self.write_pending()
            self._pending_rows = rows
        self._pending += parameters

    def append(self, rows: TableRows, news: Sequence[JsonObject]) -> bool:
        """Write rows at once, if there is a quicker way than `put`."""
        return False

    def run(self, table: str, sql: str, parameters: Parameters) -> int:
        """Run a statement on rows of a table, after what is pending; how many rows it changed."""
        self.write_pending()
        self.before_lookup(table)
        try:
            return self.connection.execute(sql, parameters).rowcount
        except (sqlite3.Error, OverflowError) as error:
            raise CannotApply(f"SQLite refuses a change to table {table!r}: {error}") from error

    def write_pending(self) -> None:
        """Hand the pending rows to SQLite."""
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
        """Insert rows; if SQLite does not take one of their values as it is, all of them again, with more care."""
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
        """Anything but a change to a single row."""
        self.write_pending()
        match change:
            case Truncate():
                for relation in change.relations:
                    self._empty(relation.replica_name)
            case Backfill():
                self.rows(change.relation.replica_name).backfill(change)
            case BackfillCompleted():
                self._complete_backfill(change)
            case _:
                self._reshape(self.catalog.apply(change))

    def _empty(self, name: str) -> None:
        table = self.catalog.table(name)
        self.truncate(table.name)
        if table.unfilled:
            FreshRows(self.connection, self._table_rows(name)).note_emptying(self.version)

    def _complete_backfill(self, change: BackfillCompleted) -> None:
        table = change.relation.replica_name
        effect = self.catalog.filled(table, (*change.relation.row_key.columns, *change.columns))
        if not self.catalog.table(table).unfilled:
            FreshRows(self.connection, self._table_rows(table)).forget()
        self._reshape(effect)

    def _reshape(self, effect: Effect) -> None:
        self.take_effect(effect)
        self._sinks.clear()

    def execute(self, statements: Iterable[str]) -> None:
        """Run statements that change the shape of tables."""
        for statement in statements:
            try:
                self.connection.execute(statement)
            except sqlite3.Error as error:
                raise CannotApply(f"SQLite refuses a schema change: {error} ({statement})") from error

    def rewrite(self, tables: Iterable[str]) -> None:
        """Give all rows of these tables the version of this transaction."""
        for table in tables:
            self.connection.execute(f"UPDATE {quoted(table)} SET {quoted(VERSION_COLUMN)} = ?", (self.version,))

    def reset_pending(self) -> None:
        """Forget rows that were not written, after the transaction was rolled back."""
        self._pending_rows, self._pending = None, []
        self._sinks.clear()

    @abstractmethod
    def insert_sql(self, rows: TableRows) -> str:
        """The statement that inserts a row into the table as it is now; called before it is run."""

    @abstractmethod
    def before_lookup(self, table: str) -> None:
        """A row of the table is about to be looked up by its key and changed."""

    @abstractmethod
    def truncate(self, table: str) -> None:
        """Empty a table."""

    @abstractmethod
    def take_effect(self, effect: Effect) -> None:
        """Change the shape of tables."""
