"""Sort keys for start positions, which unlike rows may lack primary-key values.

Rows never hold a null in their primary key, so their sort keys do without a null flag there. A cursor may name only
some columns; the missing ones count as null, smaller than every value.
"""

from __future__ import annotations

from typing import Any

from protocol.sync.ast import Ordering
from reference_cache.zql.ordering import Descending, KeyOf, sort_key
from reference_cache.zql.schema import Row, TableSchema


class Extreme:
    """Smaller, or greater, than every value."""

    __slots__ = ("_smallest",)

    def __init__(self, *, smallest: bool) -> None:
        self._smallest = smallest

    def __lt__(self, other: object) -> bool:
        return self._smallest and other is not self

    def __gt__(self, other: object) -> bool:
        return not self._smallest and other is not self


LOWEST = Extreme(smallest=True)
HIGHEST = Extreme(smallest=False)


def position_key(ordering: Ordering, table: TableSchema) -> KeyOf:
    """As `sort_key`, comparable with its keys, for rows with nulls anywhere."""
    plain = sort_key(ordering, table)
    indexes = table.positions(table.primary_key)
    decisive: dict[str, str] = {}
    for column, direction in ordering:
        decisive.setdefault(column, direction)

    def key(row: Row) -> tuple[Any, ...]:
        if all(row[index] is not None for index in indexes):
            return plain(row)  # type: ignore[no-any-return]
        parts: list[Any] = []
        for column, direction in decisive.items():
            parts += _parts(
                row[table.index[column]], direction, table.columns[column].type, column in table.primary_key
            )
        return tuple(parts)

    return key


def _parts(value: Any, direction: str, kind: str, in_key: bool) -> list[Any]:
    """The parts of a sort key that belong to one column."""
    ascending = direction == "asc"
    if in_key:
        return [_missing(ascending, kind) if value is None else value if ascending else _reversed(value, kind)]
    flag = (value is not None) if ascending else (value is None)
    return [flag, value if ascending or value is None else _reversed(value, kind)]


def _missing(ascending: bool, kind: str) -> Any:
    if ascending:
        return LOWEST
    return Descending(LOWEST) if kind == "string" else HIGHEST


def _reversed(value: Any, kind: str) -> Any:
    if kind == "number":
        return -value
    return not value if kind == "boolean" else Descending(value)
