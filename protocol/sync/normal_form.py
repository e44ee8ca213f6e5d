"""The normal form of a query: equal questions written differently become one text.

Groups are flattened and their members sorted, `related` is sorted by alias, and keys take a fixed order. The order of
members follows the official comparator, which is not symmetric between groups and EXISTS conditions; Python's merge
sort visits pairs as the JavaScript engine's does, so the outcome agrees.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cmp_to_key

from protocol.sync.ast import (
    And,
    Column,
    Condition,
    CorrelatedSubquery,
    Exists,
    Literal,
    Operand,
    Or,
    Query,
    Simple,
    Static,
)
from protocol.sync.js_json import string_of

_QUERY_KEYS = ("schema", "table", "alias", "where", "related", "start", "limit", "orderBy")
_RELATED_KEYS = ("correlation", "hidden", "subquery", "system")


def normalize(query: Query) -> Query:
    """The query in normal form; idempotent in meaning, and its JSON text is what the query id hashes."""
    where = None if query.where is None else _flatten(query.where)
    related = sorted((_normal_related(each) for each in query.related), key=lambda each: each.alias)
    return replace(
        query,
        where=None if where is None else _normal_condition(where),
        related=tuple(related),
        keys=_key_order(query),
    )


def _key_order(query: Query) -> tuple[str, ...]:
    # A list key also counts as written when the list is empty, so it is named only if the query wrote it.
    unwritten = {"related"} - {*query.keys} if not query.related else set()
    unwritten |= {"orderBy"} - {*query.keys} if not query.order_by else set()
    return tuple(key for key in _QUERY_KEYS if key not in unwritten)


def _normal_related(related: CorrelatedSubquery) -> CorrelatedSubquery:
    return replace(_normal_correlated(related), keys=_RELATED_KEYS)


def _normal_correlated(related: CorrelatedSubquery) -> CorrelatedSubquery:
    return replace(related, correlation=replace(related.correlation, keys=()), subquery=normalize(related.subquery))


def _flatten(condition: Condition) -> Condition | None:
    """Merge groups of the same kind one level per pass, unwrap single members, drop empty groups."""
    if not isinstance(condition, And | Or):
        return condition
    members: list[Condition] = []
    for member in condition.conditions:
        parts = member.conditions if isinstance(member, And | Or) and type(member) is type(condition) else (member,)
        members += [flat for part in parts if (flat := _flatten(part)) is not None]
    if len(members) < 2:
        return members[0] if members else None
    return type(condition)(tuple(members))


def _normal_condition(condition: Condition) -> Condition:
    if isinstance(condition, Simple):
        return condition
    if isinstance(condition, Exists):
        return replace(condition, related=_normal_correlated(condition.related))
    members = sorted(map(_normal_condition, condition.conditions), key=cmp_to_key(_compare_conditions))
    return type(condition)(tuple(members))


def _compare_conditions(a: Condition, b: Condition) -> int:
    if isinstance(a, Simple) or isinstance(b, Simple):
        if not (isinstance(a, Simple) and isinstance(b, Simple)):
            return -1 if isinstance(a, Simple) else 1
        return _compare_operands(a.left, b.left) or _sign(a.op, b.op) or _compare_operands(a.right, b.right)
    if isinstance(a, Exists):
        if not isinstance(b, Exists):
            return -1
        return _sign((a.related.alias, a.op, *_flags(a)), (b.related.alias, b.op, *_flags(b)))
    # Asymmetric on purpose: a group also counts as smaller than an EXISTS on its right.
    return -1 if isinstance(b, Exists) else _compare_groups(a, b)


def _compare_groups(a: And | Or, b: And | Or) -> int:
    if type(a) is not type(b):
        return -1 if isinstance(a, And) else 1
    for left, right in zip(a.conditions, b.conditions, strict=False):
        sign = _compare_conditions(left, right)
        if sign:
            return sign
    return len(a.conditions) - len(b.conditions)


def _compare_operands(a: Operand, b: Operand) -> int:
    return _sign(_operand_key(a), _operand_key(b))


def _operand_key(operand: Operand) -> tuple[str, str]:
    match operand:
        case Column():
            return "column", operand.name
        case Literal():
            return "literal", string_of(operand.value)
        case Static():
            return "static", f"{operand.anchor}.{string_of(operand.field)}"


def _flags(condition: Exists) -> tuple[int, int]:
    """Absent before false before true."""
    return _rank(condition.flip), _rank(condition.scalar)


def _rank(flag: bool | None) -> int:
    return 0 if flag is None else 1 + flag


def _sign(a: object, b: object) -> int:
    return 0 if a == b else -1 if a < b else 1  # type: ignore[operator]
