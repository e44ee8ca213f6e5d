"""The query AST: what a client asks for, as immutable values.

A `Query` selects rows of one table (`where`, `order_by`, `start`, `limit`) and the rows related to them
(`related`). Everything here is a frozen, slotted dataclass holding tuples, so a query can be a dictionary key,
shared between pipelines and rewritten piecewise with `dataclasses.replace`.

Each node read from JSON remembers in `keys` the keys it had, in order (so also whether an empty list was written out):
the query hash is a hash of JSON text, so this order is part of a query's identity on the wire. `keys` takes no part in
equality; empty means the builder's own order.
Reading and writing JSON is `protocol.sync.ast_json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from typing import Literal as OneOf

JsonValue: TypeAlias = Any
Scalar: TypeAlias = str | int | float | bool | None
LiteralValue: TypeAlias = Scalar | tuple[str | int | float | bool, ...]
Direction: TypeAlias = OneOf["asc", "desc"]
Ordering: TypeAlias = tuple[tuple[str, Direction], ...]
SimpleOp: TypeAlias = OneOf[
    "=", "!=", "IS", "IS NOT", "<", ">", "<=", ">=", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE", "IN", "NOT IN"
]
ExistsOp: TypeAlias = OneOf["EXISTS", "NOT EXISTS"]
System: TypeAlias = OneOf["client", "permissions", "test"]
Anchor: TypeAlias = OneOf["authData", "preMutationRow"]
Keys: TypeAlias = tuple[str, ...]

_KEYS: Any = field(default=(), compare=False, repr=False)


def strict(value: object) -> object:
    """A value to compare instead, which keeps booleans and numbers distinct, as the query language does."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, tuple | list):
        return ("list", tuple(strict(item) for item in value))
    if isinstance(value, Mapping):
        return ("object", tuple(sorted((key, strict(item)) for key, item in value.items())))
    return value


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the enclosing query's own table."""

    name: str
    keys: Keys = _KEYS


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; lists (as tuples) occur only on the right of IN and NOT IN. `True` is not equal to `1`."""

    value: LiteralValue
    keys: Keys = _KEYS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and strict(self.value) == strict(other.value)

    def __hash__(self) -> int:
        return hash(strict(self.value))


@dataclass(frozen=True, slots=True)
class Static:
    """A parameter the server fills in before a pipeline is built; a tuple `field` is a path."""

    anchor: Anchor
    field: str | tuple[str, ...]
    keys: Keys = _KEYS


Operand: TypeAlias = Column | Literal | Static


@dataclass(frozen=True, slots=True)
class Simple:
    """One comparison; the right side is never a column."""

    op: SimpleOp
    left: Operand
    right: Literal | Static
    keys: Keys = _KEYS


@dataclass(frozen=True, slots=True)
class And:
    """True if every member is; empty means true."""

    conditions: tuple[Condition, ...]
    keys: Keys = _KEYS


@dataclass(frozen=True, slots=True)
class Or:
    """True if some member is; empty means false."""

    conditions: tuple[Condition, ...]
    keys: Keys = _KEYS


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether the correlated subquery has a row (`type: correlatedSubquery` on the wire).

    `flip`: None lets the planner decide, True evaluates child first, False never does.
    `scalar`: a hint that the subquery has at most one row.
    """

    op: ExistsOp
    related: CorrelatedSubquery
    flip: bool | None = None
    scalar: bool | None = None
    keys: Keys = _KEYS


Condition: TypeAlias = Simple | And | Or | Exists


@dataclass(frozen=True, slots=True)
class Correlation:
    """The n-th parent column equals the n-th child column; both sides have the same length, at least one."""

    parent_field: tuple[str, ...]
    child_field: tuple[str, ...]
    keys: Keys = _KEYS


@dataclass(frozen=True, slots=True)
class CorrelatedSubquery:
    """A subquery and how it hangs on its parent; the subquery always has an alias."""

    correlation: Correlation
    subquery: Query
    hidden: bool | None = None
    system: System | None = None
    keys: Keys = _KEYS

    @property
    def alias(self) -> str:
        assert self.subquery.alias is not None
        return self.subquery.alias


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A cursor: the row may be partial and need not exist; missing order columns count as null."""

    row: Mapping[str, JsonValue]
    exclusive: bool
    keys: Keys = _KEYS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Start) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> object:
        return (strict(self.row), self.exclusive)


@dataclass(frozen=True, slots=True)
class Query:
    """One level of a query; the root has no alias, every subquery has one."""

    table: str
    schema: str | None = None
    alias: str | None = None
    where: Condition | None = None
    related: tuple[CorrelatedSubquery, ...] = ()
    start: Start | None = None
    limit: int | None = None
    order_by: Ordering = ()
    keys: Keys = _KEYS


def exists_conditions(condition: Condition | None) -> Iterator[Exists]:
    """The EXISTS and NOT EXISTS conditions of one level, in traversal order, not descending into subqueries."""
    if isinstance(condition, Exists):
        yield condition
    elif isinstance(condition, And | Or):
        for member in condition.conditions:
            yield from exists_conditions(member)


def has_subquery(condition: Condition | None) -> bool:
    """Whether a condition of this level involves a subquery."""
    return next(exists_conditions(condition), None) is not None


def has_more_parts(whole: Query | Condition, most: int) -> bool:
    """Whether there are more conditions, subqueries, list members and order columns than that."""
    left = most
    waiting: list[Query | Condition] = [whole]
    while waiting and left >= 0:
        part = waiting.pop()
        left -= 1
        match part:
            case Query():
                left -= len(part.order_by)
                waiting += [related.subquery for related in part.related]
                if part.where is not None:
                    waiting.append(part.where)
            case Exists():
                waiting.append(part.related.subquery)
            case Simple():
                if isinstance(part.right, Literal) and isinstance(part.right.value, tuple):
                    left -= len(part.right.value)
            case _:
                waiting += part.conditions
    return left < 0


def map_leaves(condition: Condition, change: Callable[[Simple | Exists], Condition]) -> Condition:
    """The condition with every comparison and EXISTS of this level replaced by `change` of it; groups stay."""
    if isinstance(condition, And | Or):
        return replace(condition, conditions=tuple(map_leaves(member, change) for member in condition.conditions))
    return change(condition)
