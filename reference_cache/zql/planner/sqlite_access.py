"""How SQLite reads a table: runs EXPLAIN QUERY PLAN and parses the answer.

So the index that SQLite searches, and whether it sorts, are never guessed. The statement is the one that a source runs,
with literals written out and join columns as parameters.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from protocol.sync.ast import And, Column, Condition, Exists, Literal, LiteralValue, Or, Ordering
from reference_cache.zql.planner.cost import Constraint
from service_kit.sqlite import quoted

_SQL_OPERATORS = {"!=": "<>", "ILIKE": "LIKE", "NOT ILIKE": "NOT LIKE"}
_SEARCH = re.compile(
    r"^SEARCH .* USING (?:(?:COVERING )?INDEX (?P<index>.+)|(?P<rowid>INTEGER )?PRIMARY KEY) \((?P<terms>.*)\)$"
)
MOST_IN_CHAIN = 400
"""Members of an AND or OR that are written as SQL. SQLite refuses chains of 1,000, and statements are cached."""

PRIMARY_KEY = ""
"""Stands for the key of a table without row ids, which SQLite searches without naming an index."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search by index (None: by row id), the columns that it pins, and how many range bounds it uses."""

    index: str | None
    pinned: tuple[str, ...]
    bounds: int


@dataclass(frozen=True, slots=True)
class Access:
    """SQLite's plan for one table. No search means a scan; several are the branches of an OR."""

    searches: tuple[Search, ...]
    sorts: bool


def access(
    connection: sqlite3.Connection, table: str, ordering: Ordering, condition: Condition | None, pinned: Constraint
) -> Access:
    """Returns how SQLite reads the table in this order, with this filter and with `pinned` columns from a join.

    Runs one EXPLAIN statement on `connection`; reads no rows.
    """
    where = [f"{quoted(column)} = ?" for column in pinned]
    if condition is not None:
        where.append(_sql(condition))
    sql = f"SELECT * FROM {quoted(table)}"
    sql += f" WHERE {' AND '.join(where)}" if where else ""
    sql += f" ORDER BY {', '.join(f'{quoted(column)} {way}' for column, way in ordering)}" if ordering else ""
    steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * len(pinned)).fetchall()
    top = [detail for _, parent, _, detail in steps if parent == 0]
    details = (detail for *_, detail in steps) if top[0] == "MULTI-INDEX OR" else top[:1]
    return Access(tuple(_searches(details)), any("ORDER BY" in detail for detail in top[1:]))


def _searches(details: Iterable[str]) -> Iterable[Search]:
    for detail in details:
        match = _SEARCH.match(detail)
        if match is not None:
            terms = match["terms"].split(" AND ")
            pinned = tuple(term.removesuffix("=?") for term in terms if term.endswith("=?"))
            index = None if match["rowid"] else match["index"] or PRIMARY_KEY
            yield Search(index, pinned, len(terms) - len(pinned))


def _sql(condition: Condition) -> str:
    """The condition as SQL for EXPLAIN only: it would not select the right rows (IN lists are empty, for example)."""
    if isinstance(condition, And | Or):
        word, empty = (" AND ", "TRUE") if isinstance(condition, And) else (" OR ", "FALSE")
        members = condition.conditions[:MOST_IN_CHAIN]  # the rest makes no difference to the plan
        return f"({word.join(map(_sql, members)) or empty})"
    if isinstance(condition, Exists) or not isinstance(condition.left, Column):
        return "TRUE"
    column, value = quoted(condition.left.name), condition.right.value if isinstance(condition.right, Literal) else None
    if isinstance(value, tuple):
        return f"{column} {condition.op} (SELECT value FROM json_each('[]'))"
    return f"{column} {_SQL_OPERATORS.get(condition.op, condition.op)} {_sql_literal(value)}"


def _sql_literal(value: LiteralValue) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("\0", "").replace("'", "''") + "'"
    return repr(int(value)) if isinstance(value, bool) else repr(value)
