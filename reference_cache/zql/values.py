"""Comparison and equality of single values, exactly as the query language defines them.

This is the slow, complete definition. `ordering` and `predicate` compile faster forms from a table's column types and
fall back to these functions where a type says too little (json columns). Booleans are never numbers here, although
Python thinks so.
"""

from __future__ import annotations

from typing import Any, Literal

Sign = Literal[-1, 0, 1]


class IncomparableError(TypeError):
    """Two values that have no order: of different types, or distinct json objects or lists."""

    code = "incomparable-values"


def kind(value: Any) -> str:
    """The query language's name for a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "json"


def compare(left: Any, right: Any) -> Sign:
    """Null first, then the type's own order (strings by code point); raises `IncomparableError` across types."""
    if left is None or right is None:
        return 0 if left is right else -1 if left is None else 1
    left_kind = kind(left)
    if left_kind != kind(right):
        raise IncomparableError(f"cannot compare {left_kind} with {kind(right)}: {left!r} and {right!r}")
    if left_kind == "json":
        if left is right:
            return 0
        raise IncomparableError("json objects and lists have no order; do not sort or range-compare them")
    return 0 if left == right else -1 if left < right else 1


def identical(left: Any, right: Any) -> bool:
    """Same type and value; null is identical to null. Objects and lists are identical to nothing."""
    left_kind = kind(left)
    return left_kind == kind(right) and left_kind != "json" and bool(left == right)


def equal(left: Any, right: Any) -> bool:
    """Equality for joins and constraints: as `identical`, but null equals nothing."""
    return left is not None and identical(left, right)
