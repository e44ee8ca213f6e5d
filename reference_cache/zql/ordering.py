"""Orderings: completed to be total, and compiled to sort keys and join keys of row tuples.

Nulls are first ascending and last descending. Key functions are generated source, because they run for every row that a
pipeline moves; the generated text has only column indexes and directions, never data. Rows must hold values of the
declared column types or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, cast

from protocol.sync.ast import Condition, CorrelatedSubquery, Exists, Ordering, Query, Simple, map_leaves
from reference_cache.zql.schema import Row, Schema, TableSchema

KeyOf = Callable[[Row], Any]


def complete(ordering: Ordering, primary_key: Iterable[str]) -> Ordering:
    """The ordering with missing primary-key columns appended, ascending: a total order."""
    named = {column for column, _ in ordering}
    return ordering + tuple((column, "asc") for column in primary_key if column not in named)


def complete_query(query: Query, schema: Schema) -> Query:
    """The query with the ordering of every level completed: root, related and EXISTS subqueries."""

    def complete_leaf(leaf: Simple | Exists) -> Condition:
        if isinstance(leaf, Simple):
            return leaf
        return replace(leaf, related=complete_related(leaf.related))

    def complete_related(related: CorrelatedSubquery) -> CorrelatedSubquery:
        return replace(related, subquery=complete_query(related.subquery, schema))

    return replace(
        query,
        where=None if query.where is None else map_leaves(query.where, complete_leaf),
        related=tuple(map(complete_related, query.related)),
        order_by=complete(query.order_by, schema.tables[query.table].primary_key),
    )


def is_total(ordering: Ordering, table: TableSchema) -> bool:
    """Whether the ordering names every primary-key column."""
    return {column for column, _ in ordering}.issuperset(table.primary_key)


@lru_cache(maxsize=4096)
def _lambda(body: str) -> KeyOf:
    return cast(KeyOf, eval(compile(f"lambda r: {body}", "<generated key>", "eval"), {"Descending": Descending}))


def decisive(ordering: Ordering) -> list[tuple[str, str]]:
    """The ordering without second mentions of a column, which never decide."""
    first: dict[str, str] = {}
    for column, direction in ordering:
        first.setdefault(column, direction)
    return list(first.items())


class Descending:
    """A value that sorts the other way round, for columns whose values cannot simply be negated."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)


def sort_key(ordering: Ordering, table: TableSchema) -> KeyOf:
    """A function giving each row a flat tuple whose natural order is the ordering.

    Only for non-json columns: json has no order.
    """
    parts: list[str] = []
    for column, direction in decisive(ordering):
        value = f"r[{table.index[column]}]"
        nullable = column not in table.primary_key
        if direction == "asc":
            parts += [f"{value} is not None", value] if nullable else [value]
            continue
        reversed_value = _reversed(value, table.columns[column].type)
        parts += (
            [f"{value} is None", f"None if {value} is None else {reversed_value}"] if nullable else [reversed_value]
        )
    return _lambda(f"({', '.join(parts)},)")


def _reversed(value: str, kind: str) -> str:
    if kind == "number":
        return f"-{value}"
    return f"not {value}" if kind == "boolean" else f"Descending({value})"


def join_key(columns: Iterable[str], table: TableSchema) -> KeyOf:
    """A function giving a hashable key that equals another row's key iff the columns join; None if they never can.

    A null makes the key None. One column gives the bare value, several a tuple. Boolean and json values are wrapped so
    that `true`, `1` and `"1"` are different, for any column type of the other side.
    """
    indexes = table.positions(columns)
    plain = [list(table.columns.values())[index].type in ("string", "number") for index in indexes]
    if len(indexes) == 1:
        return itemgetter(indexes[0]) if plain[0] else _tagged_key(indexes[0])
    getters = [itemgetter(index) if ok else _tagged_key(index) for index, ok in zip(indexes, plain, strict=True)]
    if not all(plain):
        return _compound_key(getters)
    values = ", ".join(f"r[{index}]" for index in indexes)
    absent = " or ".join(f"r[{index}] is None" for index in indexes)
    return _lambda(f"None if {absent} else ({values},)")


def _tagged_key(index: int) -> KeyOf:
    def key(row: Row) -> Any:
        value = row[index]
        if isinstance(value, bool):
            return ("boolean", value)
        return None if isinstance(value, dict | list) else value

    return key


def _compound_key(getters: list[Any]) -> KeyOf:
    def key(row: Row) -> Any:
        values = tuple([get(row) for get in getters])
        return None if None in values else values

    return key
