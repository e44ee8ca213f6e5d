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
from reference_cache.ivm.sqlite_codec import Parameters, decoder, encoder, json_text, key_parameters
from reference_cache.ivm.sqlite_text import Sql, order_sql, quoted, split_filter, start_sql
from reference_cache.query.predicate import compile_predicate
from reference_cache.query.schema import Row, TableSchema

BATCH = 64
"""Rows read at once; a result that fits is read completely and its statement is free again."""

PENDING_ALLOWED = 512


class SqliteTable:
    """A `RowStore` over one table of a SQLite database.

    Invariant: the table with `pending` laid over it (None means deleted) is the truth; `_stored` has what the table holds
    for the same keys. The table's primary key must be backed by a unique index.
    """

    def __init__(self, connection: sqlite3.Connection, table: TableSchema) -> None:
        self.table = table
        self.connection = connection
        self.keys = KeyExtractors(table)
        self.key = self.keys[table.primary_key]
        self.decode = decoder(table)
        self.pending: dict[Key, Row | None] = {}
        self._stored: dict[Key, Row | None] = {}
        self._update_sql: dict[tuple[int, ...], str] = {}
        self.key_parameters = key_parameters(table, table.primary_key)
        self._encode = encoder(table)
        self.columns_sql = ", ".join(quoted(column) for column in table.columns)
        name = quoted(table.name)
        self._where_key = where_key = " AND ".join(f"{quoted(column)} = ?" for column in table.primary_key)
        self._select_sql = f"SELECT {self.columns_sql} FROM {name} WHERE {where_key}"
        self._exists_sql = f"SELECT 1 FROM {name} WHERE {where_key}"
        self._delete_sql = f"DELETE FROM {name} WHERE {where_key}"
        self._insert_sql = f"INSERT INTO {name} ({self.columns_sql}) VALUES ({', '.join('?' * len(table.columns))})"

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
            self._edit(key, row, change.old_node.row)
        elif isinstance(change, Add):
            self._must_be_absent(key)
            self._keep_back(key, row, None)
        else:
            self._must_be_present(key)
            self._keep_back(key, None, row)
        if len(self.pending) > PENDING_ALLOWED:
            self.flush()

    def _edit(self, key: Key, row: Row, old_row: Row) -> None:
        old_key = self.key(old_row)
        self._must_be_present(old_key)
        if old_key != key:
            self._must_be_absent(key)
            self._keep_back(old_key, None, old_row)
            self._keep_back(key, row, None)
        else:
            self._keep_back(key, row, old_row)

    def _keep_back(self, key: Key, row: Row | None, old_row: Row | None) -> None:
        self._stored.setdefault(key, old_row)
        self.pending[key] = row

    def _must_be_present(self, key: Key) -> None:
        if not self.has(key):
            raise SourceError(f"table {self.table.name!r} has no row with key {key!r}; it cannot be changed")

    def _must_be_absent(self, key: Key) -> None:
        if self.has(key):
            raise SourceError(f"table {self.table.name!r} already has a row with key {key!r}; it cannot be added")

    def flush(self) -> None:
        """Hand kept-back writes to SQLite."""
        if not self.pending:
            return
        pending, stored = self.pending, self._stored
        self.pending, self._stored = {}, {}
        try:
            self._write(pending, stored)
        except sqlite3.IntegrityError:
            # Rows may have exchanged values of another unique key; with all of them out of the way they fit.
            self._delete(list(pending))
            self._insert([row for row in pending.values() if row is not None])

    def _write(self, pending: dict[Key, Row | None], stored: dict[Key, Row | None]) -> None:
        added: list[Row] = []
        edited: dict[tuple[int, ...], list[tuple[Row, Key]]] = {}
        for key, row in pending.items():
            old = stored[key]
            if row is not None and old is None:
                added.append(row)
            elif row is not None and old is not None:
                edited.setdefault(_changed_places(row, old), []).append((row, key))
        self._delete([key for key, row in pending.items() if row is None and stored[key] is not None])
        for places, rows in edited.items():
            self._update(places, rows)
        self._insert(added)

    def _delete(self, keys: list[Key]) -> None:
        if keys:
            self.connection.executemany(self._delete_sql, [self._parameters(key) for key in keys])

    def _insert(self, rows: list[Row]) -> None:
        if rows:
            encode = self._encode
            self.connection.executemany(self._insert_sql, rows if encode is None else [encode(row) for row in rows])

    def _update(self, places: tuple[int, ...], rows: list[tuple[Row, Key]]) -> None:
        """Set only the columns that changed: SQLite touches every index whose columns are set, changed or not."""
        if not places:
            return
        text = self._update_sql.get(places)
        if text is None:
            columns = list(self.table.columns)
            assigned = ", ".join(f"{quoted(columns[place])} = ?" for place in places)
            text = self._update_sql[places] = f"UPDATE {quoted(self.table.name)} SET {assigned} WHERE {self._where_key}"
        encode = self._encode or tuple
        pairs = [(encode(row), self._parameters(key)) for row, key in rows]
        self.connection.executemany(text, [(*(row[place] for place in places), *key) for row, key in pairs])

    def _parameters(self, key: Key) -> tuple[Any, ...]:
        parameters = self.key_parameters(key)
        assert parameters is not None
        return parameters


def _changed_places(row: Row, old_row: Row) -> tuple[int, ...]:
    return tuple(place for place, value in enumerate(row) if value != old_row[place])


Lookup: TypeAlias = tuple[str, Parameters]


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
        return self._select(where, reverse=False), key_parameters(self._store.table, columns)

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
            values = key_parameters(table, request.columns)(request.key)
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
    encode = key_parameters(table, any_of.columns)
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
