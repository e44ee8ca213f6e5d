"""What changed after a position: recorded keys, looked up as they are now, in one read transaction.

A batch takes every key recorded after the last one. Since SQLite has one writer at a time, recorded keys become
visible in whole store transactions, so a batch holds one or several of them and never a part. Each key appears
once: with its row if the row is there, as a delete if not. When the schema has moved, the same batch opens with the
schema changes.

Batches of a few rows are read at once, so that the read transaction is short. Larger ones are read while they are
consumed, and must be consumed before the next is asked for.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from adapters.sqlite.capture import (
    SchemaVersion,
    install,
    recorded_range,
    schema_cookie,
    stored_version,
)
from adapters.sqlite.connection import naming_the_cause
from adapters.sqlite.ddl import Migration, migration
from adapters.sqlite.introspect import Selection
from adapters.sqlite.lookup import TableLookup
from adapters.sqlite.triggers import CHANGES
from changesource_sdk import Change, Position, ResyncRequired, Transaction, position_lost

AT_ONCE = 2_000
"""Up to this many recorded keys are read before they are handed on."""

UNMOVED = Migration((), (), ())


@dataclass(frozen=True, slots=True)
class Place:
    """A position: the capture it belongs to, the last key read, and the schema version it was read under."""

    origin: str
    sequence: int
    version: int

    def position(self) -> Position:
        """The place as the log stores it."""
        return {"origin": self.origin, "seq": self.sequence, "schema": self.version}

    @classmethod
    def at(cls, position: Position) -> Place:
        """The place a stored position means."""
        match position:
            case {"origin": str(origin), "seq": int(sequence), "schema": int(version)}:
                return cls(origin, sequence, version)
        raise lost("it was not made by this adapter")


def lost(reason: str) -> ResyncRequired:
    """The position cannot be continued from: the store must be read anew."""
    return position_lost(reason, fix="nothing to do: the store is read anew; let only one reader follow a database")


class Tail:
    """One reader of the changes. Everything up to `place` was handed out, under the catalog of `known`."""

    def __init__(self, db: sqlite3.Connection, path: str, selection: Selection, after: Position) -> None:
        self._db = db
        self._path = path
        self._selection = selection
        self._lookups: dict[int, TableLookup | None] = {}
        self._reading: Generator[Change, None, None] = _nothing()
        self.place = Place.at(after)
        with naming_the_cause(path):
            self._current = install(db, selection)
            self._known = self._resume()

    def _resume(self) -> SchemaVersion:
        first, last = recorded_range(self._db)
        if self.place.origin != self._current.catalog.origin:
            raise lost("the database file was replaced")
        if last < self.place.sequence:
            raise lost("the database went back to an earlier state")
        if first > self.place.sequence + 1:
            raise lost("the changes since were taken by another reader of this database")
        known = stored_version(self._db, self.place.version)
        if known is None:
            raise lost(f"schema version {self.place.version} is not kept any more")
        return known

    def next_batch(self) -> Transaction | None:
        """The changes since the last batch, or None. Leaves no transaction open unless the batch is large."""
        with naming_the_cause(self._path):
            self._end_batch()
            head = self._begin()
            if head == self.place.sequence and self._current.number == self._known.number:
                self._db.rollback()
                return None
            return self._batch(head)

    def _end_batch(self) -> None:
        """Let go of a batch that was not read to its end: its cursors would hold the old state."""
        self._reading.close()
        if self._db.in_transaction:
            self._db.rollback()

    def _begin(self) -> int:
        """Open a read transaction under a schema that the capture fits; gives the last recorded key."""
        while True:
            self._db.execute("BEGIN")
            head: int | None = self._db.execute(f"SELECT max(seq) FROM {CHANGES}").fetchone()[0]
            if schema_cookie(self._db) == self._current.catalog.cookie:
                return head or 0
            self._db.rollback()
            self._current = install(self._db, self._selection)

    def _batch(self, head: int) -> Transaction:
        after, moved = self.place.sequence, UNMOVED
        if self._known.number != self._current.number:
            moved = migration(self._known.catalog, self._current.catalog)
            self._lookups.clear()
        self.place = Place(self.place.origin, head, self._current.number)
        self._known = self._current
        self._reading = self._changes(after, head, moved)
        at_once = head - after <= AT_ONCE and not moved.created and not moved.resent
        changes: Iterable[Change] = list(self._reading) if at_once else self._reading
        return Transaction(self.place.position(), changes, commit_time_ms=time.time() * 1000)

    def _changes(self, after: int, head: int, moved: Migration) -> Generator[Change, None, None]:
        with naming_the_cause(self._path):
            yield from moved.changes
            created = {table.id for table in moved.created}
            touched = self._db.execute(f"SELECT DISTINCT tbl FROM {CHANGES} WHERE seq > ? AND seq <= ?", (after, head))
            for (number,) in touched.fetchall():
                if number not in created and (lookup := self._lookup(number)):
                    yield from lookup.touched_rows(self._db, after, head)
            for table in (*moved.created, *moved.resent):
                yield from TableLookup(table).all_rows(self._db)
            self._db.rollback()

    def _lookup(self, number: int) -> TableLookup | None:
        """How to read the table of that identity; None if it is not synced any more."""
        if number not in self._lookups:
            table = self._current.catalog.table(number)
            self._lookups[number] = TableLookup(table) if table else None
        return self._lookups[number]


def _nothing() -> Generator[Change, None, None]:
    yield from ()
