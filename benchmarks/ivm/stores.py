"""Where the workload's rows live while our engine is measured.

* `memory`: rows in memory.
* `sqlite`: the replica as the reference cache has it.  The replicator, on a connection of its own, commits each
  transaction before the engine pushes its changes; the engine reads the snapshot before and then moves on.  Moving on
  is part of the measurement, the replicator's writing is not: zero-cache has a replicator besides its engine too.
* `sqlite-written`: the engine writes the table itself, as the official engine does.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Protocol

from reference_cache.replica.snapshotter import hold_snapshot, release_snapshot
from reference_cache.zql.ivm.change import Edit, Remove, SourceChange
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.schema import Row, TableSchema
from reference_cache.zql.tables.followed import FollowedTable
from reference_cache.zql.tables.memory import memory_source
from reference_cache.zql.tables.sqlite_snapshot import tune
from tests.support.zql.written_table import WrittenTable

Transaction = list[tuple[TableSchema, SourceChange]]


class Stores(Protocol):
    """Sources for the engine, and what happens around a transaction."""

    def open_source(self, table: TableSchema) -> Source: ...

    def replicate(self, transaction: Transaction) -> None:
        """What others do before the engine hears of a transaction; not measured."""
        ...

    def finish(self) -> None:
        """What the engine's side does after a transaction; measured."""
        ...

    def settle(self) -> None:
        """What is left to do after the last transaction; measured."""
        ...

    def close(self) -> None: ...


class MemoryStores:
    """Rows in memory."""

    def __init__(self, document: dict[str, Any], workload: Path) -> None:
        self._rows = document["rows"]

    def open_source(self, table: TableSchema) -> Source:
        return memory_source(table, [table.row(row) for row in self._rows[table.name]])

    def replicate(self, transaction: Transaction) -> None:
        """Nobody else is there."""

    def finish(self) -> None:
        """Nothing is to be done."""

    def settle(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Nothing is held open."""


class WrittenStores:
    """SQLite tables that the engine writes, inside one open transaction."""

    def __init__(self, document: dict[str, Any], workload: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="our-ivm-")
        self._path = Path(self._folder.name) / "replica.db"
        shutil.copy(workload / "replica.db", self._path)
        self._database = self._connect()
        hold_snapshot(self._database)
        self._stores: list[WrittenTable] = []

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None, cached_statements=512)
        tune(database)
        return database

    def open_source(self, table: TableSchema) -> Source:
        self._stores.append(WrittenTable(self._database, table))
        return Source(self._stores[-1])

    def replicate(self, transaction: Transaction) -> None:
        """The engine writes itself."""

    def finish(self) -> None:
        """Changes may gather."""

    def settle(self) -> None:
        for store in self._stores:
            store.flush()

    def close(self) -> None:
        self._database.close()
        self._folder.cleanup()


class FollowedStores(WrittenStores):
    """SQLite tables that a replicator writes and the engine follows."""

    def __init__(self, document: dict[str, Any], workload: Path) -> None:
        super().__init__(document, workload)
        self._next = self._connect()
        self._replicator = self._connect()
        self._replicator.execute("PRAGMA synchronous = OFF")
        self._followed: list[FollowedTable] = []

    def open_source(self, table: TableSchema) -> Source:
        self._followed.append(FollowedTable(self._database, table))
        return Source(self._followed[-1])

    def replicate(self, transaction: Transaction) -> None:
        self._replicator.execute("BEGIN")
        for table, change in transaction:
            old = change.old_node.row if isinstance(change, Edit) else change.node.row
            key = [old[place] for place in table.positions(table.primary_key)]
            self._replicator.execute(f'DELETE FROM "{table.name}" WHERE {_matches_key(table)}', key)
            if not isinstance(change, Remove):
                self._insert(table, change.node.row)
        self._replicator.execute("COMMIT")

    def _insert(self, table: TableSchema, row: Row) -> None:
        marks = ", ".join("?" * len(row))
        self._replicator.execute(f'INSERT INTO "{table.name}" VALUES ({marks})', row)

    def finish(self) -> None:
        before, after = self._database, self._next
        hold_snapshot(after)
        for followed in self._followed:
            followed.advance(after)
        release_snapshot(before)
        self._database, self._next = after, before

    def close(self) -> None:
        self._next.close()
        self._replicator.close()
        super().close()


def _matches_key(table: TableSchema) -> str:
    return " AND ".join(f'"{column}" = ?' for column in table.primary_key)


KINDS: dict[str, type[MemoryStores] | type[WrittenStores]] = {
    "memory": MemoryStores,
    "sqlite": FollowedStores,
    "sqlite-written": WrittenStores,
}
