"""Removes conditions that are always or never true.

An empty AND is true, an empty OR false. The normal form, which identifies queries, drops empty groups, and so would
turn "never" into "always"; a query is therefore simplified before it is normalized, and what is never true becomes one
comparison that is false. Comparisons of two literals are evaluated here, once per query.
"""

from __future__ import annotations

from dataclasses import replace

from protocol.sync.ast import And, Condition, CorrelatedSubquery, Exists, Literal, Or, Query, Simple
from reference_cache.zql.predicate import evaluate

NEVER = Simple("=", Literal(0), Literal(1))
"""A condition that no row satisfies."""


def simplify(query: Query) -> Query:
    """Returns an equivalent query without empty groups. Pure."""
    where = None if query.where is None else _simplified(query.where)
    return replace(query, where=where, related=tuple(map(_related, query.related)))


def _simplified(condition: Condition) -> Condition | None:
    """The same condition; None if it is always true, `NEVER` if it never is."""
    if isinstance(condition, Exists):
        return replace(condition, related=_related(condition.related))
    if isinstance(condition, Simple):
        return _folded(condition)
    members = [_simplified(member) for member in condition.conditions]
    return _conjunction(condition, members) if isinstance(condition, And) else _disjunction(condition, members)


def _folded(condition: Simple) -> Condition | None:
    left, right = condition.left, condition.right
    if not isinstance(left, Literal) or not isinstance(right, Literal):
        return condition
    return None if evaluate(condition.op, left.value, right.value) else NEVER


def _conjunction(condition: And, members: list[Condition | None]) -> Condition | None:
    kept = tuple(member for member in members if member is not None)
    if NEVER in kept:
        return NEVER
    return replace(condition, conditions=kept) if kept else None


def _disjunction(condition: Or, members: list[Condition | None]) -> Condition | None:
    if None in members:
        return None
    kept = tuple(member for member in members if member is not None and member != NEVER)
    return replace(condition, conditions=kept) if kept else NEVER


def _related(related: CorrelatedSubquery) -> CorrelatedSubquery:
    return replace(related, subquery=simplify(related.subquery))
