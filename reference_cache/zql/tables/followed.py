"""A table of the replica, which the replicator writes in another process.

The replicator has committed some transactions; the engine still reads the snapshot before them, on a connection with an
open read transaction. Each change is pushed and kept in memory on top of the snapshot. When all are pushed, the engine
moves to a snapshot that has exactly these changes, and `advance` drops what is in memory. Nothing is written to SQLite.
Changes are not checked either: they come from the log of a table that has accepted them.

    after = snapshots.hold_next()                              # `replica.snapshotter` holds both versions
    for change in log_between(snapshots.current, after): engine.push(change.table, ...)
    for store in stores: store.advance(after)
    snapshots.advance()
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from heapq import merge
from itertools import chain

from protocol.sync.ast import Condition, Ordering
from reference_cache.zql.ivm.change import Add, Edit, SourceChange
from reference_cache.zql.ivm.operator import Key, Request
from reference_cache.zql.ordering import sort_key
from reference_cache.zql.schema import Row, TableSchema
from reference_cache.zql.tables.memory import MemoryReader, MemoryTable
from reference_cache.zql.tables.sqlite_snapshot import Checkpoint, SqliteReader, SqliteSnapshot


class FollowedTable:
    """A `RowStore` over a snapshot and the changes made since.

    Invariant: the present rows are those of the snapshot whose key is not in `touched`, and those in `above`.
    """

    def __init__(
        self, connection: sqlite3.Connection, table: TableSchema, checkpoint: Checkpoint | None = None
    ) -> None:
        self.table = table
        self.below = SqliteSnapshot(connection, table, checkpoint)
        # Both written by `apply` and emptied by `advance`: the rows that changes have put, and what became of each
        # changed key (None: removed).
        self.above = MemoryTable(table)
        self.touched: dict[Key, Row | None] = {}
        self.key = self.below.key

    def reader(self, ordering: Ordering | None, condition: Condition | None) -> FollowedReader:
        return FollowedReader(self, ordering, condition)

    def apply(self, change: SourceChange) -> None:
        if isinstance(change, Edit):
            old_key = self.key(change.old_node.row)
            key = self.key(change.node.row)
            if old_key != key:
                self._drop(old_key)
            self._put(key, change.node.row)
        elif isinstance(change, Add):
            self._put(self.key(change.node.row), change.node.row)
        else:
            self._drop(self.key(change.node.row))

    def _put(self, key: Key, row: Row) -> None:
        self.touched[key] = row
        self.above.put(key, row)

    def _drop(self, key: Key) -> None:
        self.touched[key] = None
        self.above.drop(key)

    def advance(self, connection: sqlite3.Connection | None = None) -> None:
        """Read a snapshot that has everything pushed so far: that of `connection`, or of the present one if None."""
        if connection is not None:
            self.below.connection = connection
        self.touched.clear()
        self.above.clear()


class FollowedReader:
    """A `Reader` that merges the snapshot's untouched rows with the rows above."""

    __slots__ = ("_above", "_below", "_condition", "_order_key", "_ordering", "_store")

    def __init__(self, store: FollowedTable, ordering: Ordering | None, condition: Condition | None) -> None:
        self._store = store
        self._ordering = ordering
        self._condition = condition
        self._order_key = None if ordering is None else sort_key(ordering, store.table)
        self._below: SqliteReader = store.below.reader(ordering, condition)
        # Made on first use: most queries are read only once, when nothing is above.
        self._above: MemoryReader | None = None

    def rows(self, request: Request) -> Iterator[Row]:
        touched = self._store.touched
        if not touched:
            return self._below.rows(request)
        if request.columns == self._store.table.primary_key:
            return self._touched_row(request) if request.key in touched else self._below.rows(request)
        key = self._store.key
        kept = (row for row in self._below.rows(request) if key(row) not in touched)
        above = list(self._rows_above(request))
        if not above:
            return kept
        if self._order_key is None:
            return chain(kept, above)
        return merge(kept, above, key=self._order_key, reverse=request.reverse)

    def _touched_row(self, request: Request) -> Iterator[Row]:
        if request.start is not None or request.any_of:
            return self._rows_above(request)
        row = self._store.touched[request.key]
        return iter(()) if row is None or not self._below.passes(row) else iter((row,))

    def _rows_above(self, request: Request) -> Iterator[Row]:
        if self._above is None:
            self._above = self._store.above.reader(self._ordering, self._condition)
        return self._above.rows(request)
