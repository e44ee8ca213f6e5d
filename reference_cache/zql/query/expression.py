"""Conditions as a developer writes them: `or_(cmp("open", True), not_(exists("labels")))`.

An expression is a recipe: what `exists("labels")` means depends on the table it is used on, so expressions are resolved
to AST conditions by the `where` they are given to. Resolution follows the official builder member for member,
including the key order of what it writes, so that query ids agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, get_args

from protocol.sync.ast import (
    And,
    Column,
    Condition,
    Exists,
    ExistsOp,
    Literal,
    LiteralValue,
    Or,
    Simple,
    SimpleOp,
    Static,
)

if TYPE_CHECKING:
    from reference_cache.zql.query.builder import QueryBuilder

SubqueryChange: TypeAlias = "Callable[[QueryBuilder], QueryBuilder]"
Value: TypeAlias = LiteralValue | list[Any] | Static

NEGATED: dict[str, str] = {
    "=": "!=",
    "<": ">=",
    ">": "<=",
    "IN": "NOT IN",
    "LIKE": "NOT LIKE",
    "ILIKE": "NOT ILIKE",
    "IS": "IS NOT",
    "EXISTS": "NOT EXISTS",
}
NEGATED |= {negative: positive for positive, negative in NEGATED.items()}


class Scope(Protocol):
    """What an expression needs of the query it is used in."""

    def exists(
        self, relationship: str, change: SubqueryChange | None, flip: bool | None, scalar: bool | None
    ) -> Exists:
        """The EXISTS condition for a relationship of the query's table."""
        ...


Expression: TypeAlias = "Condition | Deferred"


@dataclass(frozen=True, slots=True)
class Deferred:
    """A condition that depends on the table it is used on; `resolve` is pure."""

    resolve: Callable[[Scope], Condition]


def resolve(expression: Expression, scope: Scope) -> Condition:
    """The condition of an expression on the scope's table."""
    return expression.resolve(scope) if isinstance(expression, Deferred) else expression


UNSET: Any = object()
"""Marks an argument that was not passed; None is a value."""


def cmp(column: str, op_or_value: Value, value: Value = UNSET) -> Simple:
    """`cmp("open", True)` tests equality; `cmp("age", ">=", 18)` names the operator."""
    if value is UNSET:
        return Simple("=", Column(column), operand(op_or_value))
    return Simple(operator(op_or_value), Column(column), operand(value))


def cmp_lit(left: Value, op: str, right: Value) -> Simple:
    """A comparison of two constants or static parameters."""
    return Simple(operator(op), operand(left), operand(right))


def operator(op: object) -> SimpleOp:
    """Returns `op`; raises `ValueError` if it is no operator."""
    if op not in get_args(SimpleOp):
        raise ValueError(f"{op!r} is no operator; use one of {', '.join(get_args(SimpleOp))}")
    return cast(SimpleOp, op)


def operand(value: Value) -> Literal | Static:
    """The value as an operand of a comparison."""
    if isinstance(value, Static):
        return value
    return Literal(tuple(value) if isinstance(value, list) else value)


def exists(
    relationship: str, change: SubqueryChange | None = None, *, flip: bool | None = None, scalar: bool | None = None
) -> Deferred:
    """True for rows that have a related row; `change` may restrict the query of related rows."""
    return Deferred(lambda scope: scope.exists(relationship, change, flip, scalar))


def and_(*expressions: Expression | None) -> Deferred:
    """AND; None members are ignored, and without members it is true."""
    return Deferred(lambda scope: conjunction(_resolved(expressions, scope)))


def or_(*expressions: Expression | None) -> Deferred:
    """OR; None members are ignored, and without members it is false."""
    return Deferred(lambda scope: _disjunction(_resolved(expressions, scope)))


def not_(expression: Expression) -> Deferred:
    """The negation, as negated comparisons. A row with a null satisfies neither a comparison nor its negation."""
    return Deferred(lambda scope: _negation(resolve(expression, scope)))


def _resolved(expressions: tuple[Expression | None, ...], scope: Scope) -> list[Condition]:
    return [resolve(each, scope) for each in expressions if each is not None]


def conjunction(conditions: list[Condition]) -> Condition:
    """The AND of conditions, without always-true members."""
    members = tuple(each for each in conditions if each != And(()))
    if len(members) == 1:
        return members[0]
    return Or(()) if Or(()) in members else And(members)


def _disjunction(conditions: list[Condition]) -> Condition:
    members = tuple(each for each in conditions if each != Or(()))
    if len(members) == 1:
        return members[0]
    return And(()) if And(()) in members else Or(members)


def _negation(condition: Condition) -> Condition:
    match condition:
        case And():
            return Or(tuple(map(_negation, condition.conditions)))
        case Or():
            return And(tuple(map(_negation, condition.conditions)))
        case Exists():
            op = cast(ExistsOp, NEGATED[condition.op])
            return Exists(op, condition.related, condition.flip, condition.scalar)
        case Simple():
            op_ = cast(SimpleOp, NEGATED[condition.op])
            return Simple(op_, condition.left, condition.right, keys=("type", "op", "left", "right"))
