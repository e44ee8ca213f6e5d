"""Rows in a SQLite table that this store writes itself.

Writes are kept back and handed to SQLite in batches: before the next statement that could see them, and on `flush`.
Lookups by primary key look at the kept-back rows first, so a run of changes with key lookups in between costs one
batch. The caller owns the connection: it opens and commits transactions, and calls `flush` before the commit.

For a replica that someone else writes, see `followed_table`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, TypeAlias

from protocol.sync.ast import Condition, Ordering
from reference_cache.ivm.change import Add, Edit, SourceChange
from reference_cache.ivm.operator import AnyOf, Columns, Key, Request
from reference_cache.ivm.source import KeyExtractors, Source, SourceError
from reference_cache.ivm.sqlite_codec import KeyParameters, decoder, encoder, json_text
from reference_cache.ivm.sqlite_text import Sql, order_sql, quoted, split_filter, start_sql
from reference_cache.query.predicate import compile_predicate
from reference_cache.query.schema import Row, TableSchema

BATCH = 64
"""Rows read at once; a result that fits is read completely and its statement is free again."""

PENDING_ALLOWED = 512


class SqliteTable:
    """A `RowStore` over one table of a SQLite database.

    Invariant: the table with `pending` laid over it (None means deleted) is the truth. The table's primary key must be
    backed by a unique index.
    """

    def __init__(self, connection: sqlite3.Connection, table: TableSchema) -> None:
        self.table = table
        self.connection = connection
        self.keys = KeyExtractors(table)
        self.key = self.keys[table.primary_key]
        self.decode = decoder(table)
        self.pending: dict[Key, Row | None] = {}
        self.key_parameters = KeyParameters(table, table.primary_key)
        self._encode = encoder(table)
        self.columns_sql = ", ".join(quoted(column) for column in table.columns)
        name = quoted(table.name)
        where_key = " AND ".join(f"{quoted(column)} = ?" for column in table.primary_key)
        self._select_sql = f"SELECT {self.columns_sql} FROM {name} WHERE {where_key}"
        self._exists_sql = f"SELECT 1 FROM {name} WHERE {where_key}"
        self._delete_sql = f"DELETE FROM {name} WHERE {where_key}"
        self._insert_sql = f"INSERT INTO {name} ({self.columns_sql}) VALUES ({', '.join('?' * len(table.columns))})"
        self._upsert_sql = self._insert_sql + _on_conflict(table)

    def reader(self, ordering: Ordering | None, condition: Condition | None) -> SqliteReader:
        return SqliteReader(self, ordering, condition)

    def get(self, key: Key) -> Row | None:
        """The row with this primary key."""
        if key in self.pending:
            return self.pending[key]
        parameters = self.key_parameters(key)
        if parameters is None:
            return None
        row = self.connection.execute(self._select_sql, parameters).fetchone()
        return row if row is None or self.decode is None else self.decode(row)

    def has(self, key: Key) -> bool:
        """Whether there is a row with this primary key."""
        if key in self.pending:
            return self.pending[key] is not None
        return self.connection.execute(self._exists_sql, self.key_parameters(key) or ()).fetchone() is not None

    def apply(self, change: SourceChange) -> None:
        row = change.node.row
        key = self.key(row)
        if key is None:
            raise SourceError(f"row {row!r} of table {self.table.name!r} has a null in its primary key")
        if isinstance(change, Edit):
            old_key = self.key(change.old_node.row)
            if not self.has(old_key):
                raise _missing(self.table, old_key)
            if old_key != key:
                if self.has(key):
                    raise _present(self.table, key)
                self.pending[old_key] = None
            self.pending[key] = row
        elif isinstance(change, Add):
            if self.has(key):
                raise _present(self.table, key)
            self.pending[key] = row
        else:
            if not self.has(key):
                raise _missing(self.table, key)
            self.pending[key] = None
        if len(self.pending) > PENDING_ALLOWED:
            self.flush()

    def flush(self) -> None:
        """Hand kept-back writes to SQLite."""
        if not self.pending:
            return
        pending, self.pending = self.pending, {}
        deleted = [self._parameters(key) for key, row in pending.items() if row is None]
        written = [row for row in pending.values() if row is not None]
        if self._encode is not None:
            written = [self._encode(row) for row in written]
        if deleted:
            self.connection.executemany(self._delete_sql, deleted)
        try:
            self.connection.executemany(self._upsert_sql, written)
        except sqlite3.IntegrityError:
            # Rows may have exchanged values of another unique key; with all of them out of the way they fit.
            self.connection.executemany(self._delete_sql, [self._parameters(key) for key in pending])
            self.connection.executemany(self._insert_sql, written)

    def _parameters(self, key: Key) -> tuple[Any, ...]:
        parameters = self.key_parameters(key)
        assert parameters is not None
        return parameters


def _on_conflict(table: TableSchema) -> str:
    key = ", ".join(quoted(column) for column in table.primary_key)
    others = [quoted(column) for column in table.columns if column not in table.primary_key]
    if not others:
        return f" ON CONFLICT ({key}) DO NOTHING"
    return f" ON CONFLICT ({key}) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)


def _missing(table: TableSchema, key: Key) -> SourceError:
    return SourceError(f"table {table.name!r} has no row with key {key!r}; it cannot be changed")


def _present(table: TableSchema, key: Key) -> SourceError:
    return SourceError(f"table {table.name!r} already has a row with key {key!r}; it cannot be added")


Lookup: TypeAlias = tuple[str, KeyParameters]


class SqliteReader:
    """A `Reader` over a `SqliteTable`: one SELECT per request, pulled lazily."""

    def __init__(self, store: SqliteTable, ordering: Ordering | None, condition: Condition | None) -> None:
        table = store.table
        self._store = store
        self._ordering = ordering
        self._predicate = None if condition is None else compile_predicate(condition, table)
        self._filter, rest = split_filter(condition, table)
        self._rest = None if rest is None else compile_predicate(rest, table)
        self._lookups: dict[Columns, Lookup] = {}

    def rows(self, request: Request) -> Iterator[Row]:
        columns = request.columns
        if columns and request.key is None:
            return iter(())
        plain = request.start is None and not request.any_of and not request.reverse
        if plain and columns == self._store.table.primary_key:
            return self._by_primary_key(request.key)
        if self._store.pending:
            self._store.flush()
        return self._lookup(columns, request.key) if plain and columns else self._scan(request)

    def _by_primary_key(self, key: Key) -> Iterator[Row]:
        row = self._store.get(key)
        if row is None or (self._predicate is not None and not self._predicate(row)):
            return iter(())
        return iter((row,))

    def _lookup(self, columns: Columns, key: Key) -> Iterator[Row]:
        lookup = self._lookups.get(columns)
        if lookup is None:
            lookup = self._lookups[columns] = self._compile_lookup(columns)
        parameters = lookup[1](key)
        if parameters is None:
            return iter(())
        return self._run(lookup[0], parameters if self._filter is None else parameters + self._filter[1])

    def _compile_lookup(self, columns: Columns) -> Lookup:
        where = [f"{quoted(column)} = ?" for column in columns]
        if self._filter is not None:
            where.append(self._filter[0])
        return self._select(where, reverse=False), KeyParameters(self._store.table, columns)

    def _select(self, where: list[str], *, reverse: bool) -> str:
        text = f"SELECT {self._store.columns_sql} FROM {quoted(self._store.table.name)}"
        if where:
            text += " WHERE " + " AND ".join(where)
        return text if self._ordering is None else f"{text} ORDER BY {order_sql(self._ordering, reverse=reverse)}"

    def _scan(self, request: Request) -> Iterator[Row]:
        parts = self._conditions(request)
        if parts is None:
            return iter(())
        text = self._select([text for text, _ in parts], reverse=request.reverse)
        return self._run(text, tuple(value for _, values in parts for value in values))

    def _conditions(self, request: Request) -> list[Sql] | None:
        """The WHERE parts, or None if nothing can match."""
        table = self._store.table
        parts: list[Sql] = []
        if request.columns:
            values = KeyParameters(table, request.columns)(request.key)
            if values is None:
                return None
            parts.append((" AND ".join(f"{quoted(column)} = ?" for column in request.columns), values))
        parts += [_any_of_sql(any_of, table) for any_of in request.any_of]
        if request.start is not None:
            if self._ordering is None:
                raise SourceError("a start position needs an ordering")
            parts.append(start_sql(request.start, self._ordering, table, reverse=request.reverse))
        if self._filter is not None:
            parts.append(self._filter)
        return parts

    def _run(self, text: str, parameters: tuple[Any, ...]) -> Iterator[Row]:
        cursor = self._store.connection.execute(text, parameters)
        batch: list[Row] = cursor.fetchmany(BATCH)
        rows: Iterator[Row] = iter(batch) if len(batch) < BATCH else _all_rows(batch, cursor)
        if self._store.decode is not None:
            rows = map(self._store.decode, rows)
        return rows if self._rest is None else filter(self._rest, rows)


def _all_rows(batch: list[Row], cursor: sqlite3.Cursor) -> Iterator[Row]:
    try:
        while batch:
            yield from batch
            batch = cursor.fetchmany(BATCH)
    finally:
        cursor.close()


def _any_of_sql(any_of: AnyOf, table: TableSchema) -> Sql:
    encode = KeyParameters(table, any_of.columns)
    keys = [values for key in any_of.keys if (values := encode(key)) is not None]
    if len(any_of.columns) == 1:
        return (
            f"{quoted(any_of.columns[0])} IN (SELECT value FROM json_each(?))",
            (json_text([values[0] for values in keys]),),
        )
    names = ", ".join(quoted(column) for column in any_of.columns)
    parts = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(any_of.columns)))
    return f"({names}) IN (SELECT {parts} FROM json_each(?))", (json_text(keys),)


def sqlite_source(connection: sqlite3.Connection, table: TableSchema) -> Source:
    """A source whose rows live in a SQLite table and are written by it."""
    return Source(SqliteTable(connection, table))
