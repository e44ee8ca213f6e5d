"""The planner's cost model over a SQLite database.

The official server reads SQLite's own row estimates through an interface (scan status) that Python's sqlite3 does not
have. This model computes them again: SQLite plans the statement and says which index it searches and whether it sorts;
the statistics of the index give the rows per key; terms that no index serves follow SQLite's rules of thumb, in its
logarithmic steps. Two differences remain: histograms (stat4) refine the official estimate for single literals, and an
OR over several indexes is the sum of its branches here but a single row there. So a plan may differ from the official
one; results never do.
"""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass

from protocol.sync.ast import And, Column, Condition, Literal, Ordering, Simple
from reference_cache.zql.planner.cost import Constraint, TableCost, without_subqueries
from reference_cache.zql.planner.log_estimate import log_estimate, rows_of
from reference_cache.zql.planner.sqlite_access import Search, access
from reference_cache.zql.planner.sqlite_statistics import SqliteStatistics

# SQLite's rules of thumb, as logarithmic estimates (10 is a factor of two). What a term that no index serves takes off:
# `=` with a value that SQLite expects to be rare, `=` with -1, 0 or 1, any other term. BOUNDS: what zero, one or two
# range bounds on an index take off.
EQUAL, EQUAL_SMALL, OTHER = 20, 10, 1
BOUNDS = (0, 20, 60)
LIST_LENGTH = 46
"""Logarithmic estimate of the members of an IN list that is read from a table-valued function, as sources do: 25."""


class SqliteCostModel:
    """Estimates from one database's statistics, which are cached: make a new model after ANALYZE or a schema change.

    Runs statements on `connection`, so it is used in the thread that uses the connection.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._statistics = SqliteStatistics(connection)

    def __call__(
        self, table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None
    ) -> TableCost:
        kept = None if filters is None else without_subqueries(filters)
        chosen = access(self._connection, table, ordering, kept, constraint or ())
        rows = self._rows(table, chosen.searches, _terms(kept, constraint or ()))
        startup = rows * math.log2(rows) / 10 if chosen.sorts and rows > 1 else 0
        return TableCost(rows, startup, lambda columns: self._statistics.fanout(table, columns))

    def _rows(self, table: str, searches: tuple[Search, ...], terms: list[_Term]) -> float:
        total = log_estimate(self._statistics.rows(table))
        if len(searches) > 1:
            # Each branch of an OR finds its own rows; the OR is then one term that has been served.
            branches = sum(rows_of(self._searched(table, search, [], total)) for search in searches)
            return rows_of(min(total, log_estimate(branches)) - OTHER * (len(terms) - 1))
        search = searches[0] if searches else None
        served = self._served(table, search)
        if search and all(term.op == "=" for term in terms if term.column in served) and self._is_key(table, search):
            return 1
        rows = total if search is None else min(total, self._searched(table, search, terms, total))
        unserved = [term for term in terms if term.column not in served]
        rows -= OTHER * max(0, len(unserved) - (search.bounds if search else 0))
        reductions = [EQUAL_SMALL if term.small else EQUAL for term in unserved if term.op in ("=", "IS")]
        return rows_of(min(rows, total - max(reductions, default=0)))

    def _served(self, table: str, search: Search | None) -> tuple[str, ...]:
        if search is None or search.index is not None:
            return search.pinned if search else ()
        return self._statistics.row_id_columns(table) if search.pinned else ()

    def _is_key(self, table: str, search: Search) -> bool:
        if search.index is None:
            return bool(search.pinned)
        return self._statistics.is_unique(table, search.index, len(search.pinned))

    def _searched(self, table: str, search: Search, terms: list[_Term], total: int) -> int:
        served = self._served(table, search)
        lists = sum(term.op == "IN" and term.column in served for term in terms)
        if search.index is None or not search.pinned:
            rows = 0 if search.pinned else total
        else:
            rows = log_estimate(self._statistics.rows_per_key(table, search.index, len(search.pinned)))
        return rows + LIST_LENGTH * lists - BOUNDS[min(search.bounds, 2)]


@dataclass(frozen=True, slots=True)
class _Term:
    """One member of the statement's top-level AND; `small`: compared with -1, 0 or 1, common values to SQLite."""

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
