"""Scalar subqueries: an EXISTS that can match at most one row becomes a plain comparison with that row's value.

The server does this before building a pipeline. The subquery is run once, by the caller's `fetch`; it stays alive as a
*companion*, because its row is part of what the client needs and because a change of its values makes the comparison
wrong (the caller must then rebuild). What is not certain to have at most one row is left as the EXISTS it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from protocol.sync.ast import (
    And,
    Column,
    Condition,
    CorrelatedSubquery,
    Exists,
    Literal,
    Or,
    Query,
    Simple,
    map_leaves,
)
from reference_cache.zql.schema import Schema

ALWAYS_FALSE = Simple("=", Literal(1), Literal(0))
ALWAYS_TRUE = Simple("=", Literal(1), Literal(1))

Fetch = Callable[[Query], Mapping[str, Any] | None]
"""Runs a query and gives its first row by column name, or None."""


@dataclass(frozen=True, slots=True)
class Companion:
    """A subquery that was replaced, the columns read from its row, and their values (None: no row)."""

    query: Query
    columns: tuple[str, ...]
    values: tuple[Any, ...] | None


def resolve_scalars(query: Query, schema: Schema, fetch: Fetch) -> tuple[Query, tuple[Companion, ...]]:
    """The query with certain scalar subqueries replaced, inner ones first, and their companions in that order."""
    resolver = _Resolver(schema, fetch, [])
    return resolver.query(query), tuple(resolver.companions)


def is_scalar(query: Query, schema: Schema) -> bool:
    """Whether the query pins every column of some unique key to a literal, so at most one row can match."""
    table = schema.tables.get(query.table)
    pinned = set() if query.where is None else _pinned(query.where)
    return table is not None and any(pinned.issuperset(key) for key in table.keys)


def _pinned(condition: Condition) -> set[str]:
    if isinstance(condition, And):
        return set[str]().union(*map(_pinned, condition.conditions))
    match condition:
        case Simple(op="=", left=Column(name=name), right=Literal()):
            return {name}
        case _:
            return set()


@dataclass(frozen=True, slots=True)
class _Resolver:
    """One pass over a query; collects companions as it goes."""

    schema: Schema
    fetch: Fetch
    companions: list[Companion]

    def query(self, query: Query) -> Query:
        where = None if query.where is None else map_leaves(query.where, self._leaf)
        return replace(query, where=where, related=tuple(map(self._related, query.related)))

    def _related(self, related: CorrelatedSubquery) -> CorrelatedSubquery:
        return replace(related, subquery=self.query(related.subquery))

    def _leaf(self, leaf: Simple | Exists) -> Condition:
        if isinstance(leaf, Simple):
            return leaf
        resolved = replace(leaf, related=self._related(leaf.related))
        if not leaf.scalar or not is_scalar(resolved.related.subquery, self.schema):
            return resolved
        return self._comparison(resolved)

    def _comparison(self, condition: Exists) -> Condition:
        subquery, correlation = condition.related.subquery, condition.related.correlation
        row = self.fetch(subquery)
        values = None if row is None else tuple(row[column] for column in correlation.child_field)
        self.companions.append(Companion(subquery, correlation.child_field, values))
        exists = condition.op == "EXISTS"
        if values is None or None in values:
            return ALWAYS_FALSE if exists else ALWAYS_TRUE
        # IS NOT rather than !=: a parent with a null column has no match, so NOT EXISTS holds for it.
        members: tuple[Condition, ...] = tuple(
            Simple("=" if exists else "IS NOT", Column(column), Literal(value))
            for column, value in zip(correlation.parent_field, values, strict=True)
        )
        if len(members) == 1:
            return members[0]
        return And(members) if exists else Or(members)
