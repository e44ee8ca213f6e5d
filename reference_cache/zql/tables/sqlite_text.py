"""SQL text for reading a table: filters, start positions and orderings, always with bound parameters.

Only conditions that SQLite evaluates exactly as the query language does become SQL; the caller applies the others to
the rows.
Not in SQL are LIKE (it depends on settings of the connection), json columns, literals of another type than the column
(SQLite converts them), and chains of conditions that are longer than SQLite accepts.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from protocol.sync.ast import And, Column, Condition, Literal, Or, Ordering, Simple
from reference_cache.zql.ivm.operator import StartPosition
from reference_cache.zql.ordering import decisive
from reference_cache.zql.planner.sqlite_access import MOST_IN_CHAIN
from reference_cache.zql.schema import TableSchema
from reference_cache.zql.tables.sqlite_codec import json_text
from reference_cache.zql.values import kind
from service_kit.sqlite import quoted

Sql: TypeAlias = tuple[str, tuple[Any, ...]]
"""Text and its parameters."""

TRUE: Sql = ("1", ())
FALSE: Sql = ("0", ())


def filter_sql(condition: Condition, table: TableSchema) -> Sql | None:
    """The condition as SQL; None if SQLite would evaluate any part of it differently."""
    if isinstance(condition, And | Or):
        if len(condition.conditions) > MOST_IN_CHAIN:
            return None
        members = [filter_sql(member, table) for member in condition.conditions]
        known = [member for member in members if member is not None]
        if len(known) < len(members):
            return None
        return _joined(known, " AND ", TRUE) if isinstance(condition, And) else _joined(known, " OR ", FALSE)
    return _simple_sql(condition, table) if isinstance(condition, Simple) else None


def _joined(parts: list[Sql], word: str, empty: Sql) -> Sql:
    if not parts:
        return empty
    text = "(" + word.join(text for text, _ in parts) + ")"
    return text, tuple(value for _, values in parts for value in values)


def _simple_sql(condition: Simple, table: TableSchema) -> Sql | None:
    left, right, op = condition.left, condition.right, condition.op
    if not isinstance(left, Column) or not isinstance(right, Literal) or "LIKE" in op:
        return None
    column, column_kind = quoted(left.name), table.columns[left.name].type
    value = right.value
    if column_kind == "json":
        return None
    if value is None:
        if op in ("IS", "IS NOT"):
            return f"{column} {op} NULL", ()
        return FALSE
    if isinstance(value, tuple):
        return _list_sql(column, column_kind, op, value)
    return (f"{column} {op} ?", (value,)) if kind(value) == column_kind else None


def _list_sql(column: str, column_kind: str, op: str, values: tuple[Any, ...]) -> Sql | None:
    if any(kind(value) != column_kind for value in values):
        return None
    if column_kind == "boolean":
        values = tuple(int(value) for value in values)
    members = f"{column} {op} (SELECT value FROM json_each(?))"
    if op == "NOT IN":
        # `NULL NOT IN ()` is true in SQLite and false in the query language.
        members = f"({column} IS NOT NULL AND {members})"
    return members, (json_text(values),)


def split_filter(condition: Condition | None, table: TableSchema) -> tuple[Sql | None, Condition | None]:
    """Splits a condition into SQL and the rest, which the caller applies to the rows."""
    if condition is None:
        return None, None
    whole = filter_sql(condition, table)
    if whole is not None:
        return whole, None
    if not isinstance(condition, And):
        return None, condition
    known: list[Sql] = []
    rest: list[Condition] = []
    for member in condition.conditions:
        sql = filter_sql(member, table) if len(known) < MOST_IN_CHAIN else None
        if sql is None:
            rest.append(member)
        else:
            known.append(sql)
    return (_joined(known, " AND ", TRUE) if known else None), And(tuple(rest))


def order_sql(ordering: Ordering, *, reverse: bool) -> str:
    """The ORDER BY list; SQLite puts nulls first ascending and last descending, as the query language does."""
    directions = {"asc": "DESC", "desc": "ASC"} if reverse else {"asc": "ASC", "desc": "DESC"}
    return ", ".join(f"{quoted(column)} {directions[direction]}" for column, direction in decisive(ordering))


def start_sql(start: StartPosition, ordering: Ordering, table: TableSchema, *, reverse: bool) -> Sql:
    """A condition for the rows from a position on: equal in the first columns and beyond the position in the next."""
    bound = [
        (column, (direction == "asc") is not reverse, start.row[table.index[column]])
        for column, direction in decisive(ordering)
    ]
    cases: list[Sql] = []
    equal: list[Sql] = []
    for column, upward, value in bound:
        nullable = column not in table.primary_key
        cases.append(_joined([*equal, _beyond(column, upward, value, nullable)], " AND ", TRUE))
        equal.append((f"{quoted(column)} {'IS' if nullable else '='} ?", (value,)))
    if start.inclusive:
        cases.append(_joined(equal, " AND ", TRUE))
    position = _joined(cases, " OR ", FALSE)
    lead = _leading_range(*bound[0], table)
    return position if lead is None else _joined([lead, position], " AND ", TRUE)


def _beyond(column: str, upward: bool, value: Any, nullable: bool) -> Sql:
    name = quoted(column)
    if upward:
        return (f"{name} IS NOT NULL", ()) if value is None else (f"{name} > ?", (value,))
    if value is None:
        return FALSE
    return (f"({name} IS NULL OR {name} < ?)" if nullable else f"{name} < ?"), (value,)


def _leading_range(column: str, upward: bool, value: Any, table: TableSchema) -> Sql | None:
    """A condition that the position implies, in a form that an index serves: SQLite searches no index for the OR."""
    if value is None or (not upward and column not in table.primary_key):
        return None
    return f"{quoted(column)} {'>=' if upward else '<='} ?", (value,)
