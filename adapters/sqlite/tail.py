"""The changes after a position: recorded keys and the present rows of those keys, read in one read transaction.

A batch takes every key recorded after the last batch. SQLite has one writer at a time, so the keys of a transaction
become visible together: a batch holds one or several transactions, never a part of one. Each key appears once: with its
row if the row exists, as a delete if not. If the schema has changed, the batch begins with the schema changes.

Small batches are read at once, so that the read transaction is short. Larger ones are read while they are consumed, and
must be consumed before the next batch is requested.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterable

from adapters.sqlite.capture import (
    SchemaVersion,
    install,
    recorded_range,
    schema_cookie,
    stored_version,
)
from adapters.sqlite.catalog.ddl import Migration, migration
from adapters.sqlite.connection import translated_errors
from adapters.sqlite.lookup import TableLookup
from adapters.sqlite.position import SqlitePosition, lost
from adapters.sqlite.settings import Selection
from adapters.sqlite.triggers import CHANGES
from changesource_sdk import Change, Position, Transaction

AT_ONCE = 2_000
"""Batches of up to this many recorded keys are read into memory."""

WENT_BACK = "the database went back to an earlier state"
NO_MIGRATION = Migration((), (), ())


class SqliteTail:
    """Reads the changes after a position, batch by batch. Used by the one thread that consumes `changes`."""

    def __init__(self, db: sqlite3.Connection, path: str, selection: Selection, after: Position) -> None:
        self._db = db
        self._path = path
        self._selection = selection
        # How to read each table, by its identity, under `_current`; None for tables that are not synced any more.
        # Cleared when the schema changes.
        self._lookups: dict[int, TableLookup | None] = {}
        # The changes of the last batch; holds the read transaction open until it is exhausted or closed.
        self._reading: Generator[Change, None, None] = _nothing()
        # The end of the last batch that was returned.
        self.position = SqlitePosition.from_json(after)
        with translated_errors(path):
            # The schema version that is installed in the database; `_begin` replaces it when the schema has changed.
            self._current = install(db, selection)
            # The schema version that the consumer has; `_batch` sets it to `_current`.
            self._known = self._resume()

    def _resume(self) -> SchemaVersion:
        first, last = recorded_range(self._db)
        self._check_origin()
        if last < self.position.sequence:
            raise lost(WENT_BACK)
        if first > self.position.sequence + 1:
            raise lost("the changes since were taken by another reader of this database")
        known = stored_version(self._db, self.position.version)
        if known is None:
            raise lost(f"schema version {self.position.version} is not kept any more")
        return known

    def _check_origin(self) -> None:
        if self.position.origin != self._current.catalog.origin:
            raise lost("the database file was replaced")

    def next_batch(self) -> Transaction | None:
        """The changes since the last batch, or None. Leaves a read transaction open only if the batch is large."""
        with translated_errors(self._path):
            self._end_batch()
            head = self._begin()
            if head < self.position.sequence:
                # Acknowledged keys are deleted, but never the last one that was read.
                self._db.rollback()
                raise lost(WENT_BACK)
            if head == self.position.sequence and self._current.number == self._known.number:
                self._db.rollback()
                return None
            return self._batch(head)

    def _end_batch(self) -> None:
        """Close a batch that was not read to its end: its cursors would keep the old read transaction."""
        self._reading.close()
        if self._db.in_transaction:
            self._db.rollback()

    def _begin(self) -> int:
        """Open a read transaction whose schema is that of `_current`; returns the number of the last recorded key."""
        while True:
            self._db.execute("BEGIN")
            # Checked before anything else is read: in a database that was restored, the capture may be missing.
            if schema_cookie(self._db) == self._current.catalog.cookie:
                return recorded_range(self._db)[1]
            self._db.rollback()
            self._current = install(self._db, self._selection)
            self._check_origin()

    def _batch(self, head: int) -> Transaction:
        after, schema_changes = self.position.sequence, NO_MIGRATION
        if self._known.number != self._current.number:
            schema_changes = migration(self._known.catalog, self._current.catalog)
            self._lookups.clear()
        self.position = SqlitePosition(self.position.origin, head, self._current.number)
        self._known = self._current
        self._reading = self._changes(after, head, schema_changes)
        at_once = head - after <= AT_ONCE and not schema_changes.created and not schema_changes.resent
        changes: Iterable[Change] = list(self._reading) if at_once else self._reading
        return Transaction(self.position.to_json(), changes, commit_time_ms=time.time() * 1000)

    def _changes(self, after: int, head: int, schema_changes: Migration) -> Generator[Change, None, None]:
        with translated_errors(self._path):
            yield from schema_changes.changes
            # The keys recorded for a new table need no lookup: all its rows are sent below.
            created = {table.id for table in schema_changes.created}
            touched = self._db.execute(f"SELECT DISTINCT tbl FROM {CHANGES} WHERE seq > ? AND seq <= ?", (after, head))
            for (number,) in touched.fetchall():
                if number not in created and (lookup := self._lookup(number)):
                    yield from lookup.touched_rows(self._db, after, head)
            for table in (*schema_changes.created, *schema_changes.resent):
                yield from TableLookup(table).all_rows(self._db)
            self._db.rollback()

    def _lookup(self, number: int) -> TableLookup | None:
        if number not in self._lookups:
            table = self._current.catalog.table(number)
            self._lookups[number] = TableLookup(table) if table else None
        return self._lookups[number]


def _nothing() -> Generator[Change, None, None]:
    yield from ()
