"""Query evaluation by nested loops: the first oracle.

Takes a query as JSON, rows as dictionaries, and gives the result tree as JSON.  Written to be read, not to be fast, and
kept free of every import from the engine: a mistake there cannot hide here.  Queries must be bound (no static
parameters) and well typed (values compared with their own kind).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Json = dict[str, Any]
Keys = dict[str, list[str]]


class Naive:
    """Evaluates queries over `rows` (table to rows); `keys` gives every table's primary key."""

    def __init__(self, rows: Rows, keys: Keys) -> None:
        self._rows = rows
        self._keys = keys

    def tree(self, query: Json, format_: Json) -> Any:
        """The result tree of a root query in the given format."""
        return self._shape(self._level(query, {}), query, format_)

    def _shape(self, rows: list[Row], query: Json, format_: Json) -> Any:
        entries = [self._entry(row, query, format_) for row in rows]
        if not format_["singular"]:
            return entries
        if len(entries) > 1:
            raise ValueError(f"{query['table']}: {len(entries)} rows in a singular relationship")
        return entries[0] if entries else None

    def _entry(self, row: Row, query: Json, format_: Json) -> Json:
        entry = dict(row)
        last_by_alias = {related["subquery"]["alias"]: related for related in query.get("related") or ()}
        for alias, inner in format_["relationships"].items():
            entry[alias] = self._relationship(row, last_by_alias[alias], inner)
        return entry

    def _relationship(self, row: Row, related: Json, format_: Json) -> Any:
        subquery = related["subquery"]
        children = self._children(row, related)
        if not related.get("hidden"):
            return self._shape(children, subquery, format_)
        (through,) = subquery["related"]
        found = {
            self._key(through["subquery"]["table"], far): far
            for junction in children
            for far in self._children(junction, through)
        }
        far_rows = sorted(found.values(), key=self._order(through["subquery"]))
        return self._shape(far_rows, through["subquery"], format_)

    def _children(self, row: Row, related: Json) -> list[Row]:
        parent, child = related["correlation"]["parentField"], related["correlation"]["childField"]
        wanted = {theirs: row[ours] for ours, theirs in zip(parent, child, strict=True)}
        return [] if None in wanted.values() else self._level(related["subquery"], wanted)

    def _level(self, query: Json, constraint: Row) -> list[Row]:
        matching = [row for row in self._rows[query["table"]] if self._selected(row, query, constraint)]
        matching.sort(key=self._order(query))
        return matching[: query.get("limit")]

    def _selected(self, row: Row, query: Json, constraint: Row) -> bool:
        if not all(same(row[column], value) for column, value in constraint.items()):
            return False
        return self._after_start(row, query) and self._holds(query.get("where"), row)

    def _after_start(self, row: Row, query: Json) -> bool:
        start = query.get("start")
        if not start:
            return True
        position = compare_by(row, start["row"], self._ordering(query))
        return position > 0 or (position == 0 and not start["exclusive"])

    def _holds(self, condition: Json | None, row: Row) -> bool:
        match condition:
            case None:
                return True
            case {"type": "and", "conditions": members}:
                return all(self._holds(member, row) for member in members)
            case {"type": "or", "conditions": members}:
                return any(self._holds(member, row) for member in members)
            case {"type": "correlatedSubquery", "op": op, "related": related}:
                return self._exists(row, related) is (op == "EXISTS")
            case {"type": "simple", "op": op, "left": left, "right": right}:
                value = row[left["name"]] if left["type"] == "column" else left["value"]
                return simple(op, value, right["value"])
        raise ValueError(f"not a condition: {condition!r}")

    def _exists(self, row: Row, related: Json) -> bool:
        return bool(related["subquery"].get("limit") != 0 and self._children(row, related))

    def _ordering(self, query: Json) -> list[tuple[str, str]]:
        given = [(column, direction) for column, direction in query.get("orderBy") or ()]
        mentioned = {column for column, _ in given}
        return given + [(column, "asc") for column in self._keys[query["table"]] if column not in mentioned]

    def _order(self, query: Json) -> Callable[[Row], Any]:
        ordering = self._ordering(query)
        return functools.cmp_to_key(lambda a, b: compare_by(a, b, ordering))

    def _key(self, table: str, row: Row) -> tuple[Any, ...]:
        return tuple(row[column] for column in self._keys[table])


def same(a: Any, b: Any) -> bool:
    """Join equality: same kind, same value, and null equals nothing."""
    return a is not None and b is not None and isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def compare(a: Any, b: Any) -> int:
    """Null first, then the order within the kind."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    return int(a > b) - int(a < b)


def compare_by(a: Row, b: Row, ordering: list[tuple[str, str]]) -> int:
    """Compare two rows; a column that `b` lacks counts as null."""
    for column, direction in ordering:
        sign = compare(a[column], b.get(column))
        if sign:
            return sign if direction == "asc" else -sign
    return 0


def simple(op: str, left: Any, right: Any) -> bool:
    """One comparison.  Only IS and IS NOT see nulls; every other operator is false on them."""
    if op in ("IS", "IS NOT"):
        identical = left is right or same(left, right)
        return identical == (op == "IS")
    if left is None or right is None:
        return False
    if op.startswith("NOT "):
        return not simple(op.removeprefix("NOT "), left, right)
    return _OPERATORS[op](left, right)


def like(value: str, pattern: str) -> bool:
    """SQL LIKE with backslash as the escape, over the whole value."""
    return re.fullmatch("".join(_like_parts(pattern)), value, re.DOTALL) is not None


def _like_parts(pattern: str) -> Iterator[str]:
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            yield re.escape(next(characters))
        else:
            yield {"%": ".*", "_": "."}.get(character, re.escape(character))


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": same,
    "!=": lambda left, right: not same(left, right),
    "<": lambda left, right: compare(left, right) < 0,
    ">": lambda left, right: compare(left, right) > 0,
    "<=": lambda left, right: compare(left, right) <= 0,
    ">=": lambda left, right: compare(left, right) >= 0,
    "IN": lambda left, right: any(same(left, item) for item in right),
    "LIKE": like,
    "ILIKE": lambda left, right: like(left.lower(), right.lower()),
}
