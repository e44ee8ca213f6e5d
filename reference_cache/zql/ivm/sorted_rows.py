"""Rows in order, with their sort keys beside them: what a limit keeps of its input."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

from reference_cache.zql.schema import Row

SortKey: TypeAlias = tuple[Any, ...]


class SortedRows:
    """Rows sorted by key, keys kept beside them so that searching compares plain tuples."""

    __slots__ = ("keys", "rows")

    def __init__(self) -> None:
        self.keys: list[SortKey] = []
        self.rows: list[Row] = []

    def insert(self, key: SortKey, row: Row) -> None:
        """Place a row; its key must be new."""
        place = bisect_left(self.keys, key)
        self.keys.insert(place, key)
        self.rows.insert(place, row)

    def find(self, key: SortKey) -> int:
        """The place of a key, or -1."""
        place = bisect_left(self.keys, key)
        return place if place < len(self.keys) and self.keys[place] == key else -1

    def pop(self, place: int) -> Row:
        """Take the row at a place out."""
        del self.keys[place]
        return self.rows.pop(place)
