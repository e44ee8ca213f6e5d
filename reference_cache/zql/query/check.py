"""Checks a parsed query against a schema, before anything is built from it.

`parse` has checked the structure; this checks every table, column and literal at every level. Errors are `AstError`s:
the JSON path of the wrong value, what is wrong, and the most similar name that would be right.
"""

from __future__ import annotations

from collections.abc import Iterable
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
)
from protocol.sync.ast_json import AstError
from reference_cache.zql.like import LikePatternError, check_pattern
from reference_cache.zql.nearest import shown, unknown
from reference_cache.zql.schema import ColumnType, Schema, TableSchema
from reference_cache.zql.values import kind

NAME_CHARACTERS = 80
"""Characters of an unknown name that an error message repeats."""

_RANGE_OPS = ("<", "<=", ">", ">=")


class UnknownName(AstError):
    """An unknown table or column. `bare` is the message without the names that exist, for clients of a cache."""

    def __init__(self, path: str, what: str, name: str, known: Iterable[str], table: str | None = None) -> None:
        prefix = "" if table is None else f"table {table!r}: "
        super().__init__(path, f"{prefix}{unknown(what, name, known)}")
        self.bare = f"{path}: {prefix}unknown {what} {name[:NAME_CHARACTERS]!r}"


def check(query: Query, schema: Schema) -> None:
    """Raise `AstError` for the first name or literal the schema does not allow."""
    _check_query(query, schema, "")


def check_condition(condition: Condition, table: TableSchema, schema: Schema, path: str = "where") -> None:
    """Raise `AstError` for the first name or literal in a condition on `table` that the schema does not allow."""
    if isinstance(condition, Simple):
        _check_simple(condition, table, path)
    elif isinstance(condition, Exists):
        _check_related(condition.related, table, schema, f"{path}.related")
    elif isinstance(condition, And | Or):
        for i, member in enumerate(condition.conditions):
            check_condition(member, table, schema, f"{path}.conditions[{i}]")


def _check_query(query: Query, schema: Schema, prefix: str) -> None:
    if query.table not in schema.tables:
        raise UnknownName(f"{prefix}table", "table", query.table, schema.tables)
    table = schema.tables[query.table]
    if query.where is not None:
        check_condition(query.where, table, schema, f"{prefix}where")
    for i, (column, _) in enumerate(query.order_by):
        if _column(column, table, f"{prefix}orderBy[{i}][0]").type == "json":
            raise AstError(f"{prefix}orderBy[{i}][0]", f"{column!r} holds json, which has no order; order by another")
    for column, value in (query.start.row if query.start else {}).items():
        path = f"{prefix}start.row.{column}"
        _check_value(value, _column(column, table, path), column, path)
    for i, related in enumerate(query.related):
        _check_related(related, table, schema, f"{prefix}related[{i}]")


def _check_related(related: CorrelatedSubquery, parent: TableSchema, schema: Schema, path: str) -> None:
    child = schema.tables.get(related.subquery.table)
    if child is None:
        raise UnknownName(f"{path}.subquery.table", "table", related.subquery.table, schema.tables)
    for i, column in enumerate(related.correlation.parent_field):
        _column(column, parent, f"{path}.correlation.parentField[{i}]")
    for i, column in enumerate(related.correlation.child_field):
        _column(column, child, f"{path}.correlation.childField[{i}]")
    _check_query(related.subquery, schema, f"{path}.subquery.")


def _column(name: str, table: TableSchema, path: str) -> ColumnType:
    column = table.columns.get(name)
    if column is None:
        raise UnknownName(path, "column", name, table.columns, table.name)
    return column


def _check_simple(condition: Simple, table: TableSchema, path: str) -> None:
    op, right_path = condition.op, f"{path}.right.value"
    if op.endswith("LIKE") and isinstance(condition.right, Literal) and isinstance(condition.right.value, str):
        _check_pattern(condition.right.value, right_path)
    if not isinstance(condition.left, Column):
        return
    name = condition.left.name
    column = _column(name, table, f"{path}.left.name")
    if op.endswith("LIKE") and column.type != "string":
        raise AstError(f"{path}.left.name", f"{op} needs a string column, but {name!r} holds {column.type}")
    if op in _RANGE_OPS and column.type == "json":
        raise AstError(f"{path}.left.name", f"{name!r} holds json, which has no order; compare with = or IS")
    if isinstance(condition.right, Literal):
        _check_literal(condition.right.value, column, name, right_path)


def _check_pattern(pattern: str, path: str) -> None:
    try:
        check_pattern(pattern)
    except LikePatternError as error:
        raise AstError(path, str(error)) from None


def _check_literal(value: Any, column: ColumnType, name: str, path: str) -> None:
    if isinstance(value, tuple):
        for i, item in enumerate(value):
            _check_value(item, column, name, f"{path}[{i}]")
    else:
        _check_value(value, column, name, path)


def _check_value(value: Any, column: ColumnType, name: str, path: str) -> None:
    if value is not None and column.type not in ("json", kind(value)):
        raise AstError(path, f"column {name!r} holds {column.type}, but {shown(value)} is a {kind(value)}")
