"""The local tables as they would be with some rows changed: what mutators read and write, and rebasing builds.

A `Draft` holds only the rows that differ and reads everything else from the tables below, so trying something out
costs what it touches. Queries on a draft run on the same engine, over tables that merge the two (`DraftTable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import merge

from protocol.sync.ast import Condition, Ordering
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.ivm.change import SourceChange
from reference_cache.zql.ivm.operator import Key, Request
from reference_cache.zql.ivm.position import position_key
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.ivm.store import Reader, SourceError, matches
from reference_cache.zql.ivm.view import Result
from reference_cache.zql.ordering import sort_key
from reference_cache.zql.predicate import compile_predicate
from reference_cache.zql.query.builder import QueryBuilder
from reference_cache.zql.schema import Row, Schema, TableSchema
from reference_cache.zql.tables.memory import MemoryTable

Place = tuple[str, Key]
"""A table and a key."""


class Draft:
    """Changes on top of tables, which stay as they are. Invariant: a place in `changed` holds just that, or nothing."""

    def __init__(self, schema: Schema, tables: Mapping[str, MemoryTable]) -> None:
        self._schema = schema
        self._tables = tables
        self.changed: dict[Place, Row | None] = {}

    def get(self, place: Place) -> Row | None:
        """The row at a place."""
        if place in self.changed:
            return self.changed[place]
        table, key = place
        return self._tables[table].get(key)

    def set(self, place: Place, row: Row | None) -> None:
        """Put a row at a place, or nothing."""
        self.changed[place] = row

    def run(self, query: QueryBuilder) -> Result:
        """The result of a query on the tables as drafted."""
        engine = Engine(self._schema, self._source)
        view = engine.materialize(query.ast, query.format)
        result = view.result
        engine.release(view)
        return result

    def _source(self, table: TableSchema) -> Source:
        changed = {key: row for (name, key), row in self.changed.items() if name == table.name}
        return Source(DraftTable(self._tables[table.name], changed))

    def differences(self) -> Iterator[tuple[str, Row | None, Row | None]]:
        """Table, old and new row of every place that is not as below."""
        for (table, key), row in self.changed.items():
            old = self._tables[table].get(key)
            if not _same(old, row):
                yield table, old, row


def _same(old: Row | None, row: Row | None) -> bool:
    """Python holds True for equal to 1, also deep inside json, and the query language does not."""
    return old == row and repr(old) == repr(row)


class DraftTable:
    """A `RowStore` that reads a table with some rows replaced, and is never written."""

    def __init__(self, below: MemoryTable, changed: Mapping[Key, Row | None]) -> None:
        self.table = below.table
        self._below = below
        self._changed = changed

    def reader(self, ordering: Ordering | None, condition: Condition | None) -> Reader:
        return DraftReader(self._below, self._changed, ordering, condition)

    def apply(self, change: SourceChange) -> None:
        raise SourceError(f"a draft of table {self.table.name!r} is read only")


class DraftReader:
    """Rows of the table below that were not changed, and those that were, in one order."""

    def __init__(
        self,
        below: MemoryTable,
        changed: Mapping[Key, Row | None],
        ordering: Ordering | None,
        condition: Condition | None,
    ) -> None:
        table = below.table
        ordering = ordering or tuple((column, "asc") for column in table.primary_key)
        self._keys = below.keys
        self._key = below.keys[table.primary_key]
        self._changed = changed
        self._reader = below.reader(ordering, condition)
        self._order_key = sort_key(ordering, table)
        self._position_key = position_key(ordering, table)
        self._passes: Callable[[Row], bool] = (
            compile_predicate(condition, table) if condition is not None else lambda row: True
        )

    def rows(self, request: Request) -> Iterator[Row]:
        unchanged = (row for row in self._reader.rows(request) if self._key(row) not in self._changed)
        replaced = [row for row in self._changed.values() if row is not None and self._is_wanted(row, request)]
        replaced.sort(key=self._order_key, reverse=request.reverse)
        return merge(unchanged, replaced, key=self._order_key, reverse=request.reverse)

    def _is_wanted(self, row: Row, request: Request) -> bool:
        return self._passes(row) and matches(row, request, self._keys, self._order_key, self._position_key)
