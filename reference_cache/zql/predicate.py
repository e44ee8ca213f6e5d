"""Compiles conditions to functions over row tuples.

A condition without subqueries becomes one generated Python expression, so testing a row does not interpret the AST. The
generated text has column positions only; every literal is a named constant in the function's globals, so no value of a
client becomes code. What the column types decide is decided at compile time: a string column never equals a number, so
such a comparison is constant. Rows must have values of the declared types, or None. Columns of type json, whose values
may have any type, are compared by `values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, cast

from protocol.sync.ast import And, Column, Condition, Exists, Literal, Operand, Or, Simple, SimpleOp
from protocol.sync.js_json import string_of
from reference_cache.zql.like import like
from reference_cache.zql.schema import Row, TableSchema
from reference_cache.zql.values import IncomparableError, compare, identical, kind

Predicate = Callable[[Row], bool]

ALWAYS = And(())
NEVER = Or(())

CHUNK = 64
"""Members of a group that are compiled as one text. Python's compiler cannot be interrupted and takes seconds for
thousands of members; and parts that differ only in their literals have the same text, so their code is shared."""

LONGEST_KEPT = 4000
"""Characters of a text whose code is cached for other queries; the code is about ten times as large as the text."""

_RANGE = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}


def compile_predicate(condition: Condition | None, table: TableSchema) -> Predicate:
    """Returns a function that tests whether a row satisfies the condition; without a condition it is always true.

    Raises `ValueError` for EXISTS conditions (see `weaken`) and unbound static parameters. May run in any thread.
    """
    if condition is None:
        return lambda row: True
    writer = _Writer(table)
    text = writer.condition(condition)
    code = _code if len(text) <= LONGEST_KEPT else _compiled
    return cast(Predicate, eval(code(f"lambda r: {text}"), writer.constants))


def _compiled(text: str) -> CodeType:
    return compile(text, "<generated predicate>", "eval")


@lru_cache(maxsize=4096)
def _code(text: str) -> CodeType:
    # Queries that differ only in their literals have the same text, so thousands of them are compiled once.
    return _compiled(text)


def evaluate(op: SimpleOp, left: Any, right: Any) -> bool:
    """Compares two values by the complete rules; raises `IncomparableError` for types that have no order."""
    if op == "IS":
        return identical(left, right)
    if op == "IS NOT":
        return not identical(left, right)
    if left is None or right is None:
        return False
    return _evaluate_non_null(op, left, right)


def _evaluate_non_null(op: SimpleOp, left: Any, right: Any) -> bool:
    match op:
        case "=" | "!=":
            return identical(left, right) == (op == "=")
        case "IN" | "NOT IN":
            return any(identical(left, item) for item in _members(op, right)) == (op == "IN")
        case "LIKE" | "NOT LIKE" | "ILIKE" | "NOT ILIKE":
            if not isinstance(left, str):
                raise IncomparableError(f"{op} needs a string, got {kind(left)}: {left!r}")
            return like(string_of(right), ignore_case="ILIKE" in op)(left) == (not op.startswith("NOT"))
        case _:
            sign = compare(left, right)
            return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[op]


def _members(op: SimpleOp, right: Any) -> tuple[Any, ...] | list[Any]:
    if not isinstance(right, tuple | list):
        raise ValueError(f"{op} needs a list, got {kind(right)}: {right!r}; bind the parameter to a list")
    return right


class _Writer:
    """Writes one expression over the row `r`; `constants` are the globals that its names refer to."""

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        self.constants: dict[str, Any] = {"__builtins__": {}}

    def condition(self, condition: Condition) -> str:
        if isinstance(condition, Simple):
            return self._simple(condition)
        if isinstance(condition, Exists):
            raise ValueError(f"EXISTS {condition.related.alias!r} is no row predicate; remove subqueries first")
        if not condition.conditions:
            return "True" if isinstance(condition, And) else "False"
        word = " and " if isinstance(condition, And) else " or "
        return "(" + word.join(self._members(condition)) + ")"

    def _members(self, group: And | Or) -> Iterator[str]:
        members = group.conditions
        if len(members) <= CHUNK:
            yield from map(self.condition, members)
            return
        for start in range(0, len(members), CHUNK):
            part = compile_predicate(type(group)(members[start : start + CHUNK]), self._table)
            yield f"{self._constant(part)}(r)"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _simple(self, condition: Simple) -> str:
        op, right = condition.op, _literal_value(condition.right)
        if not isinstance(condition.left, Column):
            return str(evaluate(op, _literal_value(condition.left), right))
        name = condition.left.name
        value = f"r[{self._table.index[name]}]"
        column = self._table.columns[name].type
        if column == "json":
            return f"{self._constant(_json_judge(op, right))}({value})"
        if op in ("IS", "IS NOT"):
            return self._is(op, value, column, right)
        if right is None:
            return "False"
        return self._non_null(op, value, column, right)

    def _is(self, op: str, value: str, column: str, right: Any) -> str:
        if right is None:
            return f"{value} {'is' if op == 'IS' else 'is not'} None"
        if kind(right) != column:
            return "False" if op == "IS" else "True"
        return f"{value} {'==' if op == 'IS' else '!='} {self._constant(right)}"

    def _non_null(self, op: SimpleOp, value: str, column: str, right: Any) -> str:
        present = f"{value} is not None"
        match op:
            case "=":
                return f"{value} == {self._constant(right)}" if kind(right) == column else "False"
            case "!=":
                return f"({present} and {value} != {self._constant(right)})" if kind(right) == column else present
            case "IN" | "NOT IN":
                members = self._constant(frozenset(item for item in _members(op, right) if kind(item) == column))
                return f"{value} in {members}" if op == "IN" else f"({present} and {value} not in {members})"
            case "LIKE" | "NOT LIKE" | "ILIKE" | "NOT ILIKE" if column == "string":
                matches = f"{self._constant(like(string_of(right), ignore_case='ILIKE' in op))}({value})"
                return f"({present} and {'not ' if op.startswith('NOT') else ''}{matches})"
            case _ if op in _RANGE and kind(right) == column:
                return f"({present} and {value} {_RANGE[op]} {self._constant(right)})"
            case _:
                # A type error. The official engine raises it only for a row that has a value, so this does, too.
                return f"({present} and {self._constant(_json_judge(op, right))}({value}))"


def _json_judge(op: SimpleOp, right: Any) -> Callable[[Any], bool]:
    if op in ("IN", "NOT IN") and right is not None:
        return _membership(_members(op, right), wanted=op == "IN")
    return lambda left: evaluate(op, left, right)


def _membership(items: Iterable[Any], *, wanted: bool) -> Callable[[Any], bool]:
    """IN or NOT IN by the complete rules, in constant time for lists of any length."""
    members = frozenset((kind(item), item) for item in items)

    def judge(left: Any) -> bool:
        if left is None:
            return False
        left_kind = kind(left)
        return (left_kind != "json" and (left_kind, left) in members) == wanted

    return judge


def _literal_value(operand: Operand) -> Any:
    if isinstance(operand, Literal):
        return operand.value
    raise ValueError(f"{operand} must be bound to a value before a predicate can be compiled")


def simplify(condition: Condition) -> Condition:
    """Unwraps groups of one member, merges nested groups of one kind, and replaces groups that an empty group decides.

    An AND with a member that is never true is never true; an OR with one that is always true is always true.
    """
    if not isinstance(condition, And | Or):
        return condition
    if len(condition.conditions) == 1:
        return simplify(condition.conditions[0])
    merged: list[Condition] = []
    for member in map(simplify, condition.conditions):
        merged += member.conditions if type(member) is type(condition) else (member,)
    absorbing = NEVER if isinstance(condition, And) else ALWAYS
    return absorbing if absorbing in merged else type(condition)(tuple(merged))


def weaken(condition: Condition | None) -> tuple[Condition | None, bool]:
    """Returns the strongest subquery-free condition that this one implies, and whether anything was dropped.

    An EXISTS is dropped. An AND keeps its other members; an OR is dropped with any of its branches, because a row may
    satisfy that branch alone.
    """
    if condition is None or isinstance(condition, Simple):
        return condition, False
    if isinstance(condition, Exists):
        return None, True
    kept: list[Condition] = []
    dropped = False
    for member in condition.conditions:
        weaker, lost = weaken(member)
        if weaker is None and isinstance(condition, Or):
            return None, True
        dropped = dropped or lost
        if weaker is not None:
            kept.append(weaker)
    return simplify(type(condition)(tuple(kept))), dropped
