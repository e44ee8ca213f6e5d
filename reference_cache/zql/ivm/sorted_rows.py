"""Rows in order, with a parallel list of sort keys: what a limit keeps of its input."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

from reference_cache.zql.schema import Row

SortKey: TypeAlias = tuple[Any, ...]


class SortedRows:
    """Rows sorted by key, with a parallel list of keys, so that searching compares plain tuples."""

    __slots__ = ("keys", "rows")

    def __init__(self) -> None:
        # Parallel lists, ascending by key; `Take` also writes them directly.
        self.keys: list[SortKey] = []
        # The row of each key.
        self.rows: list[Row] = []

    def insert(self, key: SortKey, row: Row) -> None:
        """Insert a row; its key must be new."""
        index = bisect_left(self.keys, key)
        self.keys.insert(index, key)
        self.rows.insert(index, row)

    def find(self, key: SortKey) -> int:
        """The index of a key, or -1."""
        index = bisect_left(self.keys, key)
        return index if index < len(self.keys) and self.keys[index] == key else -1

    def pop(self, index: int) -> Row:
        """Remove and return the row at an index."""
        del self.keys[index]
        return self.rows.pop(index)
