"""All rows of one table in the middle of the stream, with the horizon that says which transactions they contain.

The table is locked against rewrites before the snapshot is taken: to an older snapshot, a rewritten table is empty. If
its definition is not the expected one, the stream has more changes of it to come. Then nothing is read, and the next
announcement tries again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg.errors import LockNotAvailable, UndefinedTable

from adapters.postgres.catalog.model import Catalog, TableDef
from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.connection import Connection, quoted, translated_errors
from adapters.postgres.position import lsn_number
from adapters.postgres.replication.visibility import Horizon
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.snapshot import TableRange, table_ranges
from changesource_sdk import AdapterError, Row

GIVE_WAY_MS = 300
"""Below the server's `deadlock_timeout` (1 s), after which it might abort the user's transaction instead of ours."""
VISIBLE_WITHIN_S = 60.0
_POLL_S = 0.005
_NAME = """SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s"""
_HORIZON = "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"


@dataclass(frozen=True, slots=True)
class TableAhead:
    """A table's rows in one snapshot; they can be read until `close`."""

    horizon: Horizon
    ranges: list[TableRange]
    db: Connection

    def rows(self) -> Iterator[Row]:
        """The rows; closes the snapshot afterwards."""
        # The session that holds the lock reads them. Another session would queue behind a schema change that waits for
        # this lock, and both would wait without end.
        try:
            for part in self.ranges:
                yield from part.rows_within(self.db)
        finally:
            self.close()

    def close(self) -> None:
        """Release the snapshot and the lock."""
        self.db.close()


def read_ahead(settings: PostgresSettings, table: TableDef, xid: int) -> TableAhead | None:
    """The current rows, or None if the table is not defined as expected. The rows contain the transaction `xid`."""
    db = settings.connect()
    try:
        with translated_errors(settings.dsn):
            _await_visible(db, xid)
            ahead = _opened_in_time(db, settings, table)
    except BaseException:
        db.close()
        raise
    if ahead is None:
        db.close()
    return ahead


def _await_visible(db: Connection, xid: int) -> None:
    """Wait until other sessions see a transaction."""
    # The server streams a commit a moment before it makes it visible (with a synchronous standby, much earlier).
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
        time.sleep(_POLL_S)


def _opened_in_time(db: Connection, settings: PostgresSettings, table: TableDef) -> TableAhead | None:
    """Take the lock; gives way after `GIVE_WAY_MS` to a transaction that waits for us, and tries again."""
    db.execute(f"SET lock_timeout = {GIVE_WAY_MS}".encode())
    while True:
        try:
            ahead = _opened(db, settings, table)
        except LockNotAvailable:
            db.rollback()
            continue
        if ahead is not None:
            db.execute("SET lock_timeout = 0")
        return ahead


def _opened(db: Connection, settings: PostgresSettings, table: TableDef) -> TableAhead | None:
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
    selected = read_catalog(db, settings.all_publications, settings.selection)
    if selected.catalog.table(table.oid) != table:
        return None
    ranges = table_ranges(db, settings.dsn, "", Catalog((table,)), selected.types)
    return TableAhead(Horizon.parse(snapshot, lsn_number(end)), ranges, db)
