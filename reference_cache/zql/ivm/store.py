"""The contract of a row store: where the rows of one table live, below a `Source`.

A store reads and writes rows and knows nothing of pipelines: `tables.memory` and `tables.followed` are stores. Each way
of reading is a `Reader`, compiled once. What every store needs to answer requests is here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from protocol.sync.ast import Condition, Ordering
from reference_cache.zql.ivm.change import SourceChange
from reference_cache.zql.ivm.operator import Columns, Request
from reference_cache.zql.ordering import KeyOf, join_key
from reference_cache.zql.schema import Row, TableSchema


class SourceError(ValueError):
    """A change or a connection that contradicts the table."""

    code = "bad-source-use"


class Reader(Protocol):
    """One way of reading a store: an ordering (or none) and a filter, compiled once."""

    def rows(self, request: Request) -> Iterator[Row]:
        """The stored rows that satisfy filter and request, in order; without an ordering, in any order."""
        ...


class RowStore(Protocol):
    """Where the rows of one table live."""

    @property
    def table(self) -> TableSchema: ...

    def reader(self, ordering: Ordering | None, condition: Condition | None) -> Reader:
        """A reader with this ordering and this subquery-free filter."""
        ...

    def apply(self, change: SourceChange) -> None:
        """Write a change; raises `SourceError` if the row to add exists or the row to change does not."""
        ...


class KeyExtractors:
    """Join-key functions of one table, compiled on first use."""

    __slots__ = ("_by_columns", "_table")

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        # Filled by `__getitem__`.
        self._by_columns: dict[Columns, KeyOf] = {}

    def __getitem__(self, columns: Columns) -> KeyOf:
        key_of = self._by_columns.get(columns)
        if key_of is None:
            key_of = self._by_columns[columns] = join_key(columns, self._table)
        return key_of


def matches(row: Row, request: Request, keys: KeyExtractors, order_key: KeyOf, position_key: KeyOf) -> bool:
    """Whether a row satisfies a request."""
    if request.columns and (request.key is None or keys[request.columns](row) != request.key):
        return False
    if any(keys[any_of.columns](row) not in any_of.keys for any_of in request.any_of):
        return False
    start = request.start
    if start is None:
        return True
    here, bound = order_key(row), position_key(start.row)
    if here == bound:
        return start.inclusive
    return bool(here < bound if request.reverse else bound < here)
