"""The planner's cost model over a SQLite database.

The official server reads SQLite's own row estimates through an interface (scan status) that Python's sqlite3 does not
offer. This model rebuilds them from the same statistics: an index whose leading columns are pinned gives its average
rows per key, a fully pinned unique key gives one row, and what no index covers is judged by SQLite's own rules of
thumb. Whether a sort is needed is not guessed: the statement is planned and SQLite says. The estimates are therefore
close to the official ones, not equal; a plan may differ, results never do.
"""

from __future__ import annotations

import math
import sqlite3

from protocol.sync.ast import And, Column, Condition, Exists, Literal, LiteralValue, Or, Ordering, Simple
from reference_cache.query.cost import Constraint, TableCost
from reference_cache.query.filters import without_subqueries
from reference_cache.query.sqlite_statistics import SqliteStatistics, quote

UNINDEXED_EQUAL = 1 / 4
UNINDEXED_FLAG = 1 / 2
RANGE = 1 / 4
OTHER = 15 / 16

_SQL_OPERATORS = {"!=": "<>", "ILIKE": "LIKE", "NOT ILIKE": "NOT LIKE"}


class SqliteCostModel:
    """Estimates from one database's statistics; make a new one after ANALYZE or a schema change."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._statistics = SqliteStatistics(connection)

    def __call__(
        self, table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None
    ) -> TableCost:
        kept = None if filters is None else without_subqueries(filters)
        rows = self._rows(table, kept, constraint or ())
        sorts = rows > 1 and self._sorts(table, ordering, kept, constraint or ())
        startup = rows * math.log2(rows) / 10 if sorts else 0
        return TableCost(rows, startup, lambda columns: self._statistics.fanout(table, columns))

    def _rows(self, table: str, condition: Condition | None, constraint: Constraint) -> float:
        total = self._statistics.rows(table)
        pinned, rest = _split(condition)
        columns = {*pinned, *constraint}
        if self._statistics.is_unique(table, columns):
            return min(1, total)
        rows, covered = self._indexed_rows(table, columns, total)
        for column in sorted(columns - covered):
            rows *= self._equal_share(table, column, pinned.get(column))
        for member in rest:
            rows *= self._share(table, member)
        return rows

    def _indexed_rows(self, table: str, columns: set[str], total: int) -> tuple[float, set[str]]:
        """The rows left by the index that covers most of the pinned columns, and which those are."""
        best, covered = float(total), set[str]()
        for index in self._statistics.indexes(table):
            prefix: list[str] = []
            for column in index.columns:
                if column not in columns:
                    break
                prefix.append(column)
            known = self._statistics.known_fanout(table, prefix) if len(prefix) > len(covered) else None
            if known is not None:
                best, covered = min(known, total), set(prefix)
        return best, covered

    def _share(self, table: str, condition: Condition) -> float:
        if isinstance(condition, And):
            return math.prod(self._share(table, member) for member in condition.conditions)
        if isinstance(condition, Or):
            return 1 - math.prod(1 - self._share(table, member) for member in condition.conditions)
        if isinstance(condition, Exists) or not isinstance(condition.left, Column):
            return 1
        return self._simple_share(table, condition.left.name, condition)

    def _simple_share(self, table: str, column: str, condition: Simple) -> float:
        value = condition.right.value if isinstance(condition.right, Literal) else None
        if condition.op in ("=", "IS"):
            return self._equal_share(table, column, value)
        if condition.op == "IN" and isinstance(value, tuple):
            return min(1, len(value) * self._equal_share(table, column, None))
        return RANGE if condition.op in ("<", "<=", ">", ">=") else OTHER

    def _equal_share(self, table: str, column: str, value: LiteralValue) -> float:
        known = self._statistics.known_fanout(table, [column])
        if known is not None:
            return min(1, known / max(1, self._statistics.rows(table)))
        return UNINDEXED_FLAG if value in (-1, 0, 1) else UNINDEXED_EQUAL

    def _sorts(self, table: str, ordering: Ordering, condition: Condition | None, constraint: Constraint) -> bool:
        where = [f"{quote(column)} = ?" for column in constraint]
        if condition is not None:
            where.append(_sql(condition))
        sql = f"SELECT * FROM {quote(table)}"
        sql += f" WHERE {' AND '.join(where)}" if where else ""
        sql += f" ORDER BY {', '.join(f'{quote(column)} {way}' for column, way in ordering)}" if ordering else ""
        steps = self._connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * len(constraint))
        return any(parent == 0 and "ORDER BY" in detail for _, parent, _, detail in steps.fetchall())


def _split(condition: Condition | None) -> tuple[dict[str, LiteralValue], list[Condition]]:
    """Columns pinned to a literal by a top-level AND member, and the other members."""
    members = condition.conditions if isinstance(condition, And) else () if condition is None else (condition,)
    pinned: dict[str, LiteralValue] = {}
    rest: list[Condition] = []
    for member in members:
        if isinstance(member, Simple) and member.op in ("=", "IS") and isinstance(member.left, Column):
            pinned[member.left.name] = member.right.value if isinstance(member.right, Literal) else None
        else:
            rest.append(member)
    return pinned, rest


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
