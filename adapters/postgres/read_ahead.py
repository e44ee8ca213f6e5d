"""All rows of one table in the middle of the stream, with the horizon that tells what they already hold.

The table is locked against being written anew before the snapshot is taken, for a rewritten table shows nothing to an
older snapshot. If its definition is not the expected one any more, the stream has further changes of it to come, and
nothing is read: the next announcement is the time to try again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg.errors import LockNotAvailable, UndefinedTable

from adapters.postgres.catalog.model import Catalog, TableDef
from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.connection import Connection, naming_the_cause, quoted
from adapters.postgres.replication.session import lsn_number
from adapters.postgres.replication.visibility import Horizon
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.snapshot import TableRange, table_ranges
from changesource_sdk import AdapterError, Row

GIVE_WAY_MS = 300
"""Less than the server's `deadlock_timeout`, after which it might end the user's transaction instead of ours."""
VISIBLE_WITHIN_S = 60.0
_LOOK_AGAIN_S = 0.005
_NAME = """SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s"""
_HORIZON = "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """A table's rows as one snapshot shows them; they can be read until `close`."""

    horizon: Horizon
    ranges: list[TableRange]
    db: Connection

    def rows(self) -> Iterator[Row]:
        """The rows; the snapshot is let go of afterwards.

        They are read by the session that holds the lock: any other would queue behind a schema change that waits for
        the lock, and both would wait for ever.
        """
        try:
            for part in self.ranges:
                yield from part.rows_within(self.db)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the snapshot and the lock."""
        self.db.close()


def read_ahead(settings: PostgresSettings, table: TableDef, xid: int) -> ReadAhead | None:
    """The rows as they are now, or None if the table is not as expected any more; `xid` will be seen in any case."""
    db = settings.connect()
    try:
        with naming_the_cause(settings.dsn):
            _await_visible(db, xid)
            found = _opened_in_time(db, settings, table)
    except BaseException:
        db.close()
        raise
    if found is None:
        db.close()
    return found


def _await_visible(db: Connection, xid: int) -> None:
    """A transaction reaches the stream a moment before other sessions see it."""
    deadline = time.monotonic() + VISIBLE_WITHIN_S
    while True:
        snapshot = db.execute("SELECT pg_current_snapshot()::text").fetchone()
        if snapshot is not None and Horizon.parse(snapshot[0], 0).has_seen(xid):
            return
        if time.monotonic() > deadline:
            raise AdapterError(
                "transaction-not-visible",
                "a transaction is in the stream, but other sessions do not see it",
                fix="see whether the server waits for a synchronous standby; it is tried again",
            )
        time.sleep(_LOOK_AGAIN_S)


def _opened_in_time(db: Connection, settings: PostgresSettings, table: TableDef) -> ReadAhead | None:
    """Give way to whoever waits for us while we wait for them, before the server ends one of us."""
    db.execute(f"SET lock_timeout = {GIVE_WAY_MS}".encode())
    while True:
        try:
            found = _opened(db, settings, table)
        except LockNotAvailable:
            db.rollback()
            continue
        if found is not None:
            db.execute("SET lock_timeout = 0")
        return found


def _opened(db: Connection, settings: PostgresSettings, table: TableDef) -> ReadAhead | None:
    name = db.execute(_NAME, (table.oid,)).fetchone()
    if name is None or name != (table.schema, table.name):
        return None
    db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        db.execute(f"LOCK TABLE {quoted(table.schema)}.{quoted(table.name)} IN ACCESS SHARE MODE".encode())
    except UndefinedTable:
        return None
    answer = db.execute(_HORIZON).fetchone()
    assert answer is not None
    snapshot, end = answer
    found = read_catalog(db, settings.all_publications, settings.selection)
    if found.catalog.table(table.oid) != table:
        return None
    ranges = table_ranges(db, settings.dsn, "", Catalog((table,)), found.types)
    return ReadAhead(Horizon.parse(snapshot, lsn_number(end)), ranges, db)
