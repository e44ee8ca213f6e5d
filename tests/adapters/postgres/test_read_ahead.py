"""Rows of a table read in the middle of the stream, while users go on changing it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from adapters.postgres.catalog.model import TableDef
from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.connection import Connection, connect
from adapters.postgres.read_ahead import TableAhead, read_ahead
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.system_tables import ensure_system_tables
from tests.support.waiting import until

LONG_AGO = 3
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'public.t'::regclass"


def followed(db: Connection, dsn: str) -> tuple[PostgresSettings, TableDef]:
    settings = PostgresSettings.parse(dsn, publication="p")
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("INSERT INTO t SELECT generate_series(1, 10)")
    db.execute("CREATE TABLE other (id int PRIMARY KEY, n int DEFAULT 1)")
    db.execute("CREATE PUBLICATION p FOR TABLE t, other")
    ensure_system_tables(db, settings.app, settings.shard, settings.system_publication)
    tables = read_catalog(db, settings.all_publications, settings.selection).catalog.tables
    return settings, next(table for table in tables if table.name == "t")


@contextmanager
def waiting_for_the_lock(db: Connection, dsn: str, *statements: str) -> Iterator[threading.Thread]:
    """A user's transaction whose last statement waits for table `t`."""

    def run() -> None:
        with connect(dsn) as user, user.transaction():
            for statement in statements:
                user.execute(statement.encode())

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: db.execute(WAITING).fetchone() != (0,), "the user to wait")
    yield thread
    thread.join()


def ids(found: TableAhead | None) -> list[object]:
    assert found is not None
    return [row["id"] for row in found.rows()]


def test_a_schema_change_that_waits_for_the_table_does_not_keep_us_from_reading_it(db: Connection, dsn: str) -> None:
    settings, table = followed(db, dsn)
    found = read_ahead(settings, table, LONG_AGO)
    with waiting_for_the_lock(db, dsn, "ALTER TABLE public.t ADD n int") as user:
        assert ids(found) == list(range(1, 11))
        user.join(60)
        assert not user.is_alive()


def test_a_migration_over_several_tables_is_never_the_victim_of_a_deadlock(db: Connection, dsn: str) -> None:
    settings, table = followed(db, dsn)
    held = connect(dsn)
    held.execute("BEGIN")
    held.execute("LOCK TABLE public.t IN ACCESS SHARE MODE")
    migration = ("ALTER TABLE public.other ADD m int DEFAULT 2", "ALTER TABLE public.t ADD n int")
    read: list[object] = []
    with waiting_for_the_lock(db, dsn, *migration) as user:
        reader = threading.Thread(target=lambda: read.append(read_ahead(settings, table, LONG_AGO)))
        reader.start()
        held.close()
        user.join(60)
        reader.join(60)
    assert not user.is_alive()
    assert read == [None]
    assert db.execute("SELECT n FROM t").fetchone() == (None,)
