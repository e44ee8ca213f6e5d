"""The rows that a query references, and how often.

This is most of what an idle cache holds, so a row costs its values and one entry of a table's dictionary: there is no
object around it, and the count is noted only for rows that are referenced more than once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from reference_cache.zql.ivm.operator import Key
from reference_cache.zql.schema import Row

RowId: TypeAlias = tuple[str, Key]
"""Table and primary key."""


class RowSet:
    """Rows by id. Invariant: exactly those with at least one reference; `_more` has the references after the first."""

    __slots__ = ("_more", "_tables")

    def __init__(self) -> None:
        # The rows by table and primary key; every method below writes it.
        self._tables: dict[str, dict[Key, Row]] = {}
        # References after the first, for rows that have more than one.
        self._more: dict[RowId, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def __contains__(self, row_id: RowId) -> bool:
        rows = self._tables.get(row_id[0])
        return rows is not None and row_id[1] in rows

    def __getitem__(self, row_id: RowId) -> Row:
        return self._tables[row_id[0]][row_id[1]]

    def get(self, row_id: RowId) -> Row | None:
        """The row; None if it is not there."""
        rows = self._tables.get(row_id[0])
        return None if rows is None else rows.get(row_id[1])

    def items(self) -> Iterator[tuple[RowId, Row]]:
        """All rows, table by table."""
        for table, rows in self._tables.items():
            for key, row in rows.items():
                yield (table, key), row

    def add(self, row_id: RowId, row: Row) -> None:
        """Count one reference more, to these values."""
        table, key = row_id
        rows = self._tables.get(table)
        if rows is None:
            rows = self._tables[table] = {}
        elif key in rows:
            self._more[row_id] = self._more.get(row_id, 0) + 1
        rows[key] = row

    def remove(self, row_id: RowId) -> None:
        """Count one reference less; with the last one the row goes."""
        more = self._more.get(row_id)
        if more is None:
            del self._tables[row_id[0]][row_id[1]]
        elif more == 1:
            del self._more[row_id]
        else:
            self._more[row_id] = more - 1

    def replace(self, row_id: RowId, row: Row) -> None:
        """Give a row new values."""
        self._tables[row_id[0]][row_id[1]] = row

    def clear(self) -> None:
        """Drop all references."""
        self._tables.clear()
        self._more.clear()
