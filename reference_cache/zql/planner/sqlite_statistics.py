"""SQLite's statistics of its tables: row counts, indexes, and rows per key.

The numbers come from `sqlite_stat4` and `sqlite_stat1`, which ANALYZE fills (the first only in builds that support it).
Without statistics, rows are counted and fan-outs have a default. Everything is cached: make a new object after ANALYZE.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reference_cache.zql.planner.sqlite_access import PRIMARY_KEY
from service_kit.sqlite import quoted

DEFAULT_FANOUT = 3
"""Rows per key of columns without a usable index, as the official planner assumes."""

UNKNOWN_ROWS_PER_KEY = (10, 9, 8, 7, 6, 5)
"""What SQLite assumes of an index without statistics, by the number of pinned columns."""


@dataclass(frozen=True, slots=True)
class StatisticsIndex:
    """An index of a table; `unique` only if it covers every row, `primary` if it is the primary key's own."""

    name: str
    columns: tuple[str, ...]
    unique: bool
    primary: bool

    def begins_with(self, columns: Iterable[str]) -> bool:
        """Whether the first columns are exactly these, in any order and letter case."""
        wanted = {column.lower() for column in columns}
        return {column.lower() for column in self.columns[: len(wanted)]} == wanted


class SqliteStatistics:
    """Statistics of one database, read on first use and cached. Used in the thread that uses the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._has = {
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')"
            )
        }
        # Caches, filled on first use. Rows by table:
        self._rows: dict[str, int] = {}
        # By table.
        self._indexes: dict[str, tuple[StatisticsIndex, ...]] = {}
        # By table and sorted columns.
        self._fanouts: dict[tuple[str, tuple[str, ...]], float] = {}

    def rows(self, table: str) -> int:
        """The rows of the table at the last ANALYZE; without statistics they are counted, which reads the table."""
        if table not in self._rows:
            self._rows[table] = self._analyzed_rows(table) or self._counted_rows(table)
        return self._rows[table]

    def _analyzed_rows(self, table: str) -> int | None:
        if "sqlite_stat1" not in self._has:
            return None
        stats = self._connection.execute("SELECT stat FROM sqlite_stat1 WHERE tbl = ?", (table,))
        return max((int(stat.split()[0]) for (stat,) in stats), default=None)

    def _counted_rows(self, table: str) -> int:
        (count,) = self._connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()
        return int(count)

    def indexes(self, table: str) -> tuple[StatisticsIndex, ...]:
        """The table's indexes, in SQLite's own order."""
        if table not in self._indexes:
            listed = self._connection.execute(
                'SELECT name, "unique", partial, origin FROM pragma_index_list(?) ORDER BY seq', (table,)
            ).fetchall()
            self._indexes[table] = tuple(
                StatisticsIndex(name, self._index_columns(name), bool(unique and not partial), origin == "pk")
                for name, unique, partial, origin in listed
            )
        return self._indexes[table]

    def _index_columns(self, index: str) -> tuple[str, ...]:
        rows = self._connection.execute("SELECT name FROM pragma_index_info(?) ORDER BY seqno", (index,))
        return tuple(name or "" for (name,) in rows)

    def fanout(self, table: str, columns: Sequence[str]) -> float:
        """The rows per distinct non-null value of these columns; `DEFAULT_FANOUT` if no index begins with them."""
        key = (table, tuple(sorted(columns)))
        if key not in self._fanouts:
            known = self._known_fanout(table, columns)
            self._fanouts[key] = DEFAULT_FANOUT if known is None else known
        return self._fanouts[key]

    def _known_fanout(self, table: str, columns: Sequence[str]) -> float | None:
        index = next((index for index in self.indexes(table) if index.begins_with(columns)), None)
        if index is None:
            return None
        depth = len({column.lower() for column in columns})
        sampled = self._sampled_fanout(table, index, depth)
        return self._average_rows(table, index, depth) if sampled is None else sampled

    def rows_per_key(self, table: str, index: str, depth: int) -> float:
        """The rows per distinct value of the index's first `depth` columns; null counts as a value."""
        known = self._index(table, index)
        average = None if known is None else self._average_rows(table, known, depth)
        if average is not None:
            return average
        return (
            1
            if self.is_unique(table, index, depth)
            else UNKNOWN_ROWS_PER_KEY[min(depth, len(UNKNOWN_ROWS_PER_KEY)) - 1]
        )

    def is_unique(self, table: str, index: str, depth: int) -> bool:
        """Whether pinning the index's first `depth` columns leaves at most one row."""
        known = self._index(table, index)
        return known is not None and known.unique and len(known.columns) == depth

    def _index(self, table: str, name: str) -> StatisticsIndex | None:
        return next(
            (each for each in self.indexes(table) if each.name == name or (each.primary and name == PRIMARY_KEY)), None
        )

    def row_id_columns(self, table: str) -> tuple[str, ...]:
        """The primary-key column that is an alias of the row id; empty if the primary key has an index of its own."""
        if any(index.primary for index in self.indexes(table)):
            return ()
        key = self._connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (table,))
        return tuple(name for (name,) in key)

    def _sampled_fanout(self, table: str, index: StatisticsIndex, depth: int) -> float | None:
        if "sqlite_stat4" not in self._has:
            return None
        query = "SELECT neq, sample FROM sqlite_stat4 WHERE tbl = ? AND idx IN (?, ?)"
        samples = self._connection.execute(query, (table, *_statistics_names(table, index))).fetchall()
        if not samples:
            return None
        counts = sorted(int(neq.split()[depth - 1]) for neq, sample in samples if not _begins_with_null(sample))
        middle = len(counts) // 2
        if not counts:
            return 0
        return counts[middle] if len(counts) % 2 else (counts[middle - 1] + counts[middle]) // 2

    def _average_rows(self, table: str, index: StatisticsIndex, depth: int) -> float | None:
        if "sqlite_stat1" not in self._has:
            return None
        query = "SELECT stat FROM sqlite_stat1 WHERE tbl = ? AND idx IN (?, ?)"
        row = self._connection.execute(query, (table, *_statistics_names(table, index))).fetchone()
        numbers = [part for part in row[0].split() if part.isdecimal()] if row else []
        return int(numbers[depth]) if len(numbers) > depth else None


def _statistics_names(table: str, index: StatisticsIndex) -> tuple[str, str]:
    # The key of a table without row ids is filed under the table's own name.
    return index.name, table if index.primary else index.name


def _begins_with_null(sample: bytes) -> bool:
    """Whether a record's first value is null: a header length, then one serial type per value, 0 being null."""
    return len(sample) < 2 or sample[0] == 0 or sample[0] >= len(sample) or sample[1] == 0
