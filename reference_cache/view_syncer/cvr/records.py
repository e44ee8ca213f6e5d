"""Row records, per distinct query: which rows are or were in its set, and since which version.

A record has the version of the data at which the row last changed in the query (`patch_version`), and the row's own
version then (`row_version`); `there` is false for a row that left. Groups that run the same query share its records, so
a change is recorded once for all of them.

A query is *settled* at the version up to which its records are right; while it runs, that is the file's own version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reference_cache.view_syncer.cvr.file import CvrFile
from reference_cache.zql.engine.row_set import RowId
from reference_cache.zql.schema import Row


class RowPatch:
    """A row of a query's set is new or has new values (`row`), or left the set (`row` is None).

    The only shape of a change between a query pipeline and the frames of a poke; the CVR records it too. `row_id` is
    the engine's id of the row, `key` the same as clients know it: the JSON object that a `del` carries. Slotted by hand
    because one is made for every row that changes in a query.
    """

    __slots__ = ("key", "row", "row_id")

    def __init__(self, row_id: RowId, key: str, row: Row | None) -> None:
        self.row_id = row_id
        self.key = key
        self.row = row

    def __repr__(self) -> str:
        return f"RowPatch({self.row_id[0]!r}, {self.key}, {self.row!r})"


@dataclass(slots=True, eq=False)
class RecordedQuery:
    """A query in the CVR file, by its durable key. Written by `RecordStore` only, inside transactions of the file.

    `id` is its number in the file; 0 until `RecordStore.load` or `enter` finds one. `epoch` counts how often its set
    changed while the data did not. `settled` is the version up to which the records are right; None while the query
    runs, which means the file's own version. `last_patch` is the newest version at which one of its rows changed.
    """

    key: str
    id: int = 0
    epoch: int = 0
    settled: str | None = ""
    last_patch: str = ""


class RecordStore:
    """The records in the file. Calls that write are made inside a transaction of the file."""

    def __init__(self, file: CvrFile) -> None:
        self._file = file

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._file.connection

    def load(self, query: RecordedQuery) -> None:
        """Read what the file knows of the query; nothing changes if it knows nothing."""
        sql = "SELECT id, epoch, settled, last_patch FROM queries WHERE key = ?"
        stored = self._connection.execute(sql, (query.key,)).fetchone()
        if stored is not None:
            query.id, query.epoch, query.settled, query.last_patch = stored

    def enter(self, query: RecordedQuery) -> None:
        """Give the query a number if it has none."""
        if not query.id:
            entered = self._connection.execute("INSERT INTO queries VALUES (NULL, ?, 0, '', '', '')", (query.key,))
            assert entered.lastrowid is not None
            query.id = entered.lastrowid

    def write(self, query: RecordedQuery, version: str, patches: Iterable[RowPatch]) -> None:
        """Record changes of a query's set at a version of the data. The last column of a row is its version."""
        query_id = query.id
        rows = [
            (query_id, patch.row_id[0], patch.key, "", version, False)
            if (row := patch.row) is None
            else (query_id, patch.row_id[0], patch.key, row[-1], version, True)
            for patch in patches
        ]
        if rows:
            self._connection.executemany("REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)
            query.last_patch = max(query.last_patch, version)
            self._connection.execute("UPDATE queries SET last_patch = ? WHERE id = ?", (query.last_patch, query_id))

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
        """Table, key and presence of the rows whose records changed after a version."""
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
        """Delete queries that no group refers to and that do not run, at most `most` of them; returns how many."""
        kept = set(running)
        sql = "SELECT id FROM queries WHERE id NOT IN (SELECT query FROM memberships)"
        unused = [(query,) for (query,) in self._connection.execute(sql) if query not in kept][:most]
        self._connection.executemany("DELETE FROM records WHERE query = ?", unused)
        self._connection.executemany("DELETE FROM queries WHERE id = ?", unused)
        return len(unused)
