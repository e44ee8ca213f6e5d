"""A draft: the local tables with some rows changed. Mutators read and write drafts, and a rebase builds one.

A `Draft` holds only the changed rows and reads everything else from the tables below, so its cost is that of the rows
it touches. Queries on a draft run in the same engine, over tables that merge the two (`DraftTable`).
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

RowId = tuple[str, Key]
"""Table name and primary key."""


class Draft:
    """Changed rows on top of tables that stay unchanged."""

    def __init__(self, schema: Schema, tables: Mapping[str, MemoryTable]) -> None:
        self._schema = schema
        self._tables = tables
        # New rows by id, None for deleted ones; written by `set`. May hold rows equal to those below.
        self.changed: dict[RowId, Row | None] = {}

    def get(self, row_id: RowId) -> Row | None:
        if row_id in self.changed:
            return self.changed[row_id]
        table, key = row_id
        return self._tables[table].get(key)

    def set(self, row_id: RowId, row: Row | None) -> None:
        """Write a row, or delete it with None."""
        self.changed[row_id] = row

    def run(self, query: QueryBuilder) -> Result:
        """The result of a query on the drafted rows."""
        engine = Engine(self._schema, self._source)
        view = engine.materialize(query.ast, query.format)
        result = view.result
        engine.release(view)
        return result

    def _source(self, table: TableSchema) -> Source:
        changed = {key: row for (name, key), row in self.changed.items() if name == table.name}
        return Source(DraftTable(self._tables[table.name], changed))

    def differences(self) -> Iterator[tuple[str, Row | None, Row | None]]:
        """Table, old row and new row of every row that differs from the tables below."""
        for (table, key), row in self.changed.items():
            old = self._tables[table].get(key)
            if not _same(old, row):
                yield table, old, row


def _same(old: Row | None, row: Row | None) -> bool:
    """Whether two rows are equal in ZQL: in Python also True == 1, even deep inside json values."""
    return old == row and repr(old) == repr(row)


class DraftTable:
    """A read-only `RowStore` of a table with some rows replaced."""

    def __init__(self, below: MemoryTable, changed: Mapping[Key, Row | None]) -> None:
        self.table = below.table
        self._below = below
        self._changed = changed

    def reader(self, ordering: Ordering | None, condition: Condition | None) -> Reader:
        return DraftReader(self._below, self._changed, ordering, condition)

    def apply(self, change: SourceChange) -> None:
        raise SourceError(f"a draft of table {self.table.name!r} is read only")


class DraftReader:
    """Merges the unchanged rows of the table below and the changed rows in one order."""

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
        replaced = [row for row in self._changed.values() if row is not None and self._matches(row, request)]
        replaced.sort(key=self._order_key, reverse=request.reverse)
        return merge(unchanged, replaced, key=self._order_key, reverse=request.reverse)

    def _matches(self, row: Row, request: Request) -> bool:
        return self._passes(row) and matches(row, request, self._keys, self._order_key, self._position_key)
