"""The planner's cost model over a SQLite database.

The official server reads SQLite's own row estimates through an interface (scan status) that Python's sqlite3 does not
offer. This model rebuilds them: SQLite plans the statement and says which index it would search and whether it would
sort; the index's statistics give the rows per key; and the terms no index serves are judged by SQLite's own rules of
thumb, in its own logarithmic steps. What remains different is that histograms (stat4) refine the official estimate for
single literals, and that an OR over several indexes is taken for a scan. A plan may therefore differ from the official
one; results never do.
"""

from __future__ import annotations

import math
import re
import sqlite3
from dataclasses import dataclass

from protocol.sync.ast import And, Column, Condition, Exists, Literal, LiteralValue, Or, Ordering, Simple
from reference_cache.query.cost import Constraint, TableCost
from reference_cache.query.filters import without_subqueries
from reference_cache.query.log_estimate import log_estimate, rows_of
from reference_cache.query.sqlite_statistics import SqliteStatistics, quote

# SQLite's rules of thumb, as logarithmic estimates: what a term no index serves takes off, and what a range leaves.
EQUAL, EQUAL_SMALL, OTHER = 20, 10, 1
BOUNDS = (0, 20, 60)
LIST_LENGTH = 46
"""How many members SQLite expects of an IN list that it reads from a table-valued function, as the sources do: 25."""

_SQL_OPERATORS = {"!=": "<>", "ILIKE": "LIKE", "NOT ILIKE": "NOT LIKE"}
_SEARCH = re.compile(r"^SEARCH .* USING (?:(?:COVERING )?INDEX (?P<index>.+)|INTEGER PRIMARY KEY) \((?P<terms>.*)\)$")


@dataclass(frozen=True, slots=True)
class _Access:
    """How SQLite would reach the rows: an index (None for the row id), its pinned columns, and its range bounds."""

    index: str | None
    pinned: tuple[str, ...]
    bounds: int

    @classmethod
    def parse(cls, detail: str) -> _Access | None:
        """Read a step of EXPLAIN QUERY PLAN; None if it scans."""
        match = _SEARCH.match(detail)
        if match is None:
            return None
        terms = match["terms"].split(" AND ")
        pinned = tuple(term.removesuffix("=?") for term in terms if term.endswith("=?"))
        return cls(match["index"], pinned, len(terms) - len(pinned))


class SqliteCostModel:
    """Estimates from one database's statistics; make a new one after ANALYZE or a schema change."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._statistics = SqliteStatistics(connection)

    def __call__(
        self, table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None
    ) -> TableCost:
        kept = None if filters is None else without_subqueries(filters)
        steps = self._steps(table, ordering, kept, constraint or ())
        rows = self._rows(table, _Access.parse(steps[0]), _terms(kept, constraint or ()))
        sorts = rows > 1 and any("ORDER BY" in step for step in steps[1:])
        startup = rows * math.log2(rows) / 10 if sorts else 0
        return TableCost(rows, startup, lambda columns: self._statistics.fanout(table, columns))

    def _steps(self, table: str, ordering: Ordering, condition: Condition | None, constraint: Constraint) -> list[str]:
        """The top-level steps of SQLite's plan."""
        where = [f"{quote(column)} = ?" for column in constraint]
        if condition is not None:
            where.append(_sql(condition))
        sql = f"SELECT * FROM {quote(table)}"
        sql += f" WHERE {' AND '.join(where)}" if where else ""
        sql += f" ORDER BY {', '.join(f'{quote(column)} {way}' for column, way in ordering)}" if ordering else ""
        steps = self._connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * len(constraint)).fetchall()
        return [detail for _, parent, _, detail in steps if parent == 0]

    def _rows(self, table: str, access: _Access | None, terms: list[_Term]) -> float:
        served = access.pinned if access else ()
        if access and all(term.op == "=" for term in terms if term.column in served) and self._is_key(table, access):
            return 1
        total = log_estimate(self._statistics.rows(table))
        rows = total if access is None else min(total, self._searched_rows(table, access, terms, total))
        unserved = [term for term in terms if term.column not in served]
        rows -= OTHER * max(0, len(unserved) - (access.bounds if access else 0))
        reductions = [EQUAL_SMALL if term.small else EQUAL for term in unserved if term.op in ("=", "IS")]
        return rows_of(min(rows, total - max(reductions, default=0)))

    def _is_key(self, table: str, access: _Access) -> bool:
        if access.index is None:
            return bool(access.pinned)
        return self._statistics.is_unique(table, access.index, len(access.pinned))

    def _searched_rows(self, table: str, access: _Access, terms: list[_Term], total: int) -> int:
        lists = sum(term.op == "IN" and term.column in access.pinned for term in terms)
        if access.index is None or not access.pinned:
            rows = 0 if access.pinned else total
        else:
            rows = log_estimate(self._statistics.rows_per_key(table, access.index, len(access.pinned)))
        return rows + LIST_LENGTH * lists - BOUNDS[min(access.bounds, 2)]


@dataclass(frozen=True, slots=True)
class _Term:
    """One member of the statement's top-level AND; `small` literals are ones SQLite expects to be common."""

    op: str
    column: str | None = None
    small: bool = False


def _terms(condition: Condition | None, constraint: Constraint) -> list[_Term]:
    members = condition.conditions if isinstance(condition, And) else () if condition is None else (condition,)
    return [_Term("=", column) for column in constraint] + [_term(member) for member in members]


def _term(condition: Condition) -> _Term:
    if not isinstance(condition, Simple) or not isinstance(condition.left, Column):
        return _Term("")
    small = isinstance(condition.right, Literal) and condition.right.value in (-1, 0, 1)
    return _Term(condition.op, condition.left.name, small)


def _sql(condition: Condition) -> str:
    """The condition as SQL good enough to be planned: literals matter only by their presence."""
    if isinstance(condition, And | Or):
        word, empty = (" AND ", "TRUE") if isinstance(condition, And) else (" OR ", "FALSE")
        return f"({word.join(map(_sql, condition.conditions)) or empty})"
    if isinstance(condition, Exists) or not isinstance(condition.left, Column):
        return "TRUE"
    column, value = quote(condition.left.name), condition.right.value if isinstance(condition.right, Literal) else None
    if isinstance(value, tuple):
        return f"{column} {condition.op} (SELECT value FROM json_each('[]'))"
    return f"{column} {_SQL_OPERATORS.get(condition.op, condition.op)} {_sql_literal(value)}"


def _sql_literal(value: LiteralValue) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("\0", "").replace("'", "''") + "'"
    return repr(int(value)) if isinstance(value, bool) else repr(value)
