"""Row records, per distinct query: which rows are or were in its set, and since which version.

A record says at which version of the data the view of a row last changed (`patch_version`), and by `row_version` with
which content. Groups that run the same query share its records, so a change is recorded once however many watch.

A query is *settled* at the version up to which its records are right; while it runs, that is the file's own version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from reference_cache.view_syncer.cvr.file import CvrFile

Change: TypeAlias = tuple[str, str, str, bool]
"""Table, row key, row version, and whether the row is there."""


@dataclass(slots=True)
class RecordedQuery:
    """A query known to the file. `epoch` counts how often its set changed while the data stood still."""

    id: int
    epoch: int = 0
    settled: str | None = None
    last_patch: str = ""


class RecordStore:
    """The records in the file. Calls that write are made inside a transaction of the file."""

    def __init__(self, file: CvrFile) -> None:
        self._file = file

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._file.connection

    def find(self, key: str) -> RecordedQuery | None:
        """The query with this key, if it is known."""
        sql = "SELECT id, epoch, settled, last_patch FROM queries WHERE key = ?"
        found = self._connection.execute(sql, (key,)).fetchone()
        return None if found is None else RecordedQuery(*found)

    def enter(self, key: str) -> RecordedQuery:
        """A query that is new."""
        entered = self._connection.execute("INSERT INTO queries VALUES (NULL, ?, 0, '', '', '')", (key,))
        assert entered.lastrowid is not None
        return RecordedQuery(entered.lastrowid, 0, "", "")

    def write(self, query: RecordedQuery, version: str, changes: Iterable[Change]) -> None:
        """Record changes of a query's set at a version of the data."""
        rows = [(query.id, table, key, row_version, version, there) for table, key, row_version, there in changes]
        if rows:
            self._connection.executemany("REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)
            query.last_patch = max(query.last_patch, version)
            self._connection.execute("UPDATE queries SET last_patch = ? WHERE id = ?", (query.last_patch, query.id))

    def settle(self, query: RecordedQuery, version: str | None) -> None:
        """The records are right up to this version; None: as long as the query runs, up to the file's."""
        query.settled = version
        sql = "UPDATE queries SET settled = ?, epoch = ? WHERE id = ?"
        self._connection.execute(sql, (version, query.epoch, query.id))

    def rows_of(self, query: RecordedQuery) -> Iterator[tuple[tuple[str, str], str]]:
        """The rows that are there: table and key of each, and the row's version."""
        sql = "SELECT row_table, row_key, row_version FROM records WHERE query = ? AND there"
        for table, key, version in self._connection.execute(sql, (query.id,)):
            yield (table, key), version

    def changed_after(self, query_id: int, version: str) -> Iterator[tuple[str, str, bool]]:
        """Table, key and presence of the rows whose view changed after a version."""
        sql = "SELECT row_table, row_key, there FROM records WHERE query = ? AND patch_version > ?"
        for table, key, there in self._connection.execute(sql, (query_id, version)):
            yield table, key, bool(there)

    def rows_at(self, query_id: int, version: str) -> Iterator[tuple[str, str]]:
        """Table and key of all rows that a client at this version may have from the query: there now, or gone since."""
        sql = "SELECT row_table, row_key FROM records WHERE query = ? AND (there OR patch_version >= ?)"
        return iter(self._connection.execute(sql, (query_id, version)).fetchall())

    def is_there(self, query_ids: Iterable[int], table: str, key: str) -> bool:
        """Whether one of these queries has the row now."""
        sql = "SELECT 1 FROM records WHERE query = ? AND row_table = ? AND row_key = ? AND there"
        return any(self._connection.execute(sql, (query_id, table, key)).fetchone() for query_id in query_ids)

    def gone_since(self, query_id: int, version: str) -> Iterator[tuple[str, str]]:
        """Table and key of the rows that are not there, and left at this version or later."""
        sql = "SELECT row_table, row_key FROM records WHERE query = ? AND patch_version >= ? AND NOT there"
        return iter(self._connection.execute(sql, (query_id, version)).fetchall())

    def forget_unused(self, running: Iterable[int], most: int | None = None) -> int:
        """Drop queries that no group refers to and that do not run, `most` of them if given; how many."""
        kept = set(running)
        sql = "SELECT id FROM queries WHERE id NOT IN (SELECT query FROM memberships)"
        unused = [(query,) for (query,) in self._connection.execute(sql) if query not in kept][:most]
        self._connection.executemany("DELETE FROM records WHERE query = ?", unused)
        self._connection.executemany("DELETE FROM queries WHERE id = ?", unused)
        return len(unused)
