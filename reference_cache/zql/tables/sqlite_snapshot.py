"""Reads one table of a SQLite database.

Each request is one SELECT with bound values, fetched lazily. Equal requests have equal SQL text, so that the
connection's statement cache has them. `tables.followed` adds the changes on top of the table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

from protocol.sync.ast import Condition, Ordering
from reference_cache.zql.ivm.operator import AnyOf, Columns, Key, Request
from reference_cache.zql.ivm.store import KeyExtractors, SourceError
from reference_cache.zql.predicate import Predicate, compile_predicate
from reference_cache.zql.schema import Row, TableSchema
from reference_cache.zql.tables.sqlite_codec import Parameters, decoder, json_text, key_parameters
from reference_cache.zql.tables.sqlite_text import Sql, order_sql, split_filter, start_sql
from service_kit.sqlite import quoted

BATCH = 64
"""Rows fetched at a time. A smaller result is fetched completely, which frees its statement for the next use."""


def tune(connection: sqlite3.Connection) -> None:
    """Give a connection larger caches: joins look up rows all over the table."""
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("PRAGMA mmap_size = 268435456")


JUDGED_AT_ONCE = 16
"""Rows filtered in Python between two checkpoints: a condition may have thousands of parts."""

Checkpoint: TypeAlias = Callable[[], object]


class SqliteSnapshot:
    """The rows of one table. The table's primary key must be backed by a unique index.

    `checkpoint` is called between rows that are filtered in Python; it may pause the thread or raise.
    """

    def __init__(
        self, connection: sqlite3.Connection, table: TableSchema, checkpoint: Checkpoint | None = None
    ) -> None:
        self.checkpoint = checkpoint
        self.table = table
        # Sees the snapshot; `FollowedTable.advance` replaces it when the engine moves to the next one.
        self.connection = connection
        self.keys = KeyExtractors(table)
        self.key = self.keys[table.primary_key]
        self.decode = decoder(table)
        self.json_columns = frozenset(name for name, column in table.columns.items() if column.type == "json")
        self.key_parameters = key_parameters(table, table.primary_key)
        self.columns_sql = ", ".join(quoted(column) for column in table.columns)
        where = " AND ".join(f"{quoted(column)} = ?" for column in table.primary_key)
        self._select_sql = f"SELECT {self.columns_sql} FROM {quoted(table.name)} WHERE {where}"

    def reader(self, ordering: Ordering | None, condition: Condition | None) -> SqliteReader:
        return SqliteReader(self, ordering, condition)

    def get(self, key: Key) -> Row | None:
        """The row with this primary key."""
        parameters = self.key_parameters(key)
        if parameters is None:
            return None
        row = self.connection.execute(self._select_sql, parameters).fetchone()
        return row if row is None or self.decode is None else self.decode(row)


Lookup: TypeAlias = tuple[str, Parameters]


class SqliteReader:
    """A `Reader` over a `SqliteSnapshot`: one SELECT per request, pulled lazily."""

    __slots__ = ("_condition", "_filter", "_lookups", "_ordering", "_predicate", "_rest", "_snapshot")

    def __init__(self, snapshot: SqliteSnapshot, ordering: Ordering | None, condition: Condition | None) -> None:
        table = snapshot.table
        self._snapshot = snapshot
        self._ordering = ordering
        self._condition = condition
        # The whole condition, compiled by the first call of `passes`: most readers never need it.
        self._predicate: Predicate | None = None
        self._filter, rest = split_filter(condition, table)
        self._rest = None if rest is None else compile_predicate(rest, table)
        # Statement and key encoder by constrained columns; filled by `_lookup`.
        self._lookups: dict[Columns, Lookup] = {}

    def passes(self, row: Row) -> bool:
        """Whether a row satisfies the filter."""
        if self._predicate is None:
            self._predicate = compile_predicate(self._condition, self._snapshot.table)
        return self._predicate(row)

    def rows(self, request: Request) -> Iterator[Row]:
        columns = request.columns
        if columns and request.key is None:
            return iter(())
        if self._snapshot.json_columns and self._asks_for_json(request):
            return self._compared_here(request)
        plain = request.start is None and not request.any_of and not request.reverse
        if plain and columns == self._snapshot.table.primary_key:
            return self._by_primary_key(request.key)
        return self._lookup(columns, request.key) if plain and columns else self._scan(request)

    def _asks_for_json(self, request: Request) -> bool:
        constrained = [request.columns, *(any_of.columns for any_of in request.any_of)]
        return any(not self._snapshot.json_columns.isdisjoint(columns) for columns in constrained)

    def _compared_here(self, request: Request) -> Iterator[Row]:
        """Compares json columns in Python: they are stored as text, and equal values may have different texts."""
        keys, json = self._snapshot.keys, self._snapshot.json_columns
        wanted = [(request.columns, {request.key})] if not json.isdisjoint(request.columns) else []
        wanted += [(each.columns, set(each.keys)) for each in request.any_of if not json.isdisjoint(each.columns)]
        columns, key = ((), None) if not json.isdisjoint(request.columns) else (request.columns, request.key)
        any_of = tuple(each for each in request.any_of if json.isdisjoint(each.columns))
        rows = self.rows(Request(columns, key, any_of, request.start, request.reverse))
        return (row for row in rows if all(keys[names](row) in values for names, values in wanted))

    def _by_primary_key(self, key: Key) -> Iterator[Row]:
        row = self._snapshot.get(key)
        if row is None or (self._condition is not None and not self.passes(row)):
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
        return self._select(where, reverse=False), key_parameters(self._snapshot.table, columns)

    def _select(self, where: list[str], *, reverse: bool) -> str:
        text = f"SELECT {self._snapshot.columns_sql} FROM {quoted(self._snapshot.table.name)}"
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
        table = self._snapshot.table
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
        cursor = self._snapshot.connection.execute(text, parameters)
        batch: list[Row] = cursor.fetchmany(BATCH)
        rows: Iterator[Row] = iter(batch) if len(batch) < BATCH else _all_rows(batch, cursor)
        if self._snapshot.decode is not None:
            rows = map(self._snapshot.decode, rows)
        if self._rest is None:
            return rows
        checkpoint = self._snapshot.checkpoint
        return filter(self._rest, rows) if checkpoint is None else _judged(self._rest, rows, checkpoint)


def _all_rows(batch: list[Row], cursor: sqlite3.Cursor) -> Iterator[Row]:
    try:
        while batch:
            yield from batch
            batch = cursor.fetchmany(BATCH)
    finally:
        with suppress(sqlite3.ProgrammingError):  # a stream dropped late, after its connection was closed
            cursor.close()


def _judged(predicate: Predicate, rows: Iterator[Row], checkpoint: Checkpoint) -> Iterator[Row]:
    while some := list(islice(rows, JUDGED_AT_ONCE)):
        checkpoint()
        yield from filter(predicate, some)


def _any_of_sql(any_of: AnyOf, table: TableSchema) -> Sql:
    encode = key_parameters(table, any_of.columns)
    keys = [values for key in any_of.keys if (values := encode(key)) is not None]
    if len(any_of.columns) == 1:
        return (
            f"{quoted(any_of.columns[0])} IN (SELECT value FROM json_each(?))",
            (json_text([values[0] for values in keys]),),
        )
    names = ", ".join(quoted(column) for column in any_of.columns)
    parts = ", ".join(f"json_extract(value, '$[{index}]')" for index in range(len(any_of.columns)))
    return f"({names}) IN (SELECT {parts} FROM json_each(?))", (json_text(keys),)
