from __future__ import annotations

from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.connection import Connection
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.system_tables import as_consumers_expect, ensure_system_tables
from changesource_sdk.system_tables import system_tables

#: What the official push processor runs in the application's transaction.
NEXT_MUTATION = """INSERT INTO zero_0.clients AS current ("clientGroupID", "clientID", "lastMutationID")
VALUES ('g', 'c', 1) ON CONFLICT ("clientGroupID", "clientID")
DO UPDATE SET "lastMutationID" = current."lastMutationID" + 1 RETURNING "lastMutationID" """


def made(db: Connection, dsn: str) -> PostgresSettings:
    settings = PostgresSettings.parse(dsn)
    assert ensure_system_tables(db, settings.app, settings.shard, settings.system_publication)
    return settings


def test_they_are_made_once_and_left_as_they_are(db: Connection, dsn: str) -> None:
    settings = made(db, dsn)
    db.execute("UPDATE zero.permissions SET permissions = '{}'")
    assert not ensure_system_tables(db, settings.app, settings.shard, settings.system_publication)
    row = db.execute("SELECT permissions::text, hash, lock FROM zero.permissions").fetchone()
    assert row == ("{}", "99914b932bd37a50b983c5e7c90ae93b", True)


def test_what_push_processors_write_is_taken(db: Connection, dsn: str) -> None:
    made(db, dsn)
    counts = [row for _ in range(2) for row in db.execute(NEXT_MUTATION.encode())]
    db.execute("""INSERT INTO zero_0.mutations ("clientGroupID", "clientID", "mutationID", result)
        VALUES ('g', 'c', 1, '{"data": 1}')""")
    assert counts == [(1,), (2,)]


def test_consumers_find_every_column_they_demand(db: Connection, dsn: str) -> None:
    settings = made(db, dsn)
    found = read_catalog(db, [settings.system_publication], settings.selection)
    told = {table.full_name: as_consumers_expect(table.declared(), "zero", 0) for table in found.catalog.tables}
    for demanded in system_tables("zero", 0):
        table = told[demanded.full_name]
        assert set(table.key) == set(demanded.key)
        for column in demanded.columns:
            mine = table.column(column.name)
            assert mine is not None
            assert mine.zql_type == column.zql_type


def test_tables_of_the_official_layout_that_exist_are_published(db: Connection, dsn: str) -> None:
    db.execute("CREATE SCHEMA zero_0")
    db.execute("""CREATE TABLE zero_0.clients ("clientGroupID" text NOT NULL, "clientID" text NOT NULL,
        "lastMutationID" bigint NOT NULL, "userID" text, PRIMARY KEY ("clientGroupID", "clientID"))""")
    db.execute("INSERT INTO zero_0.clients VALUES ('g', 'c', 7, NULL)")
    made(db, dsn)
    assert db.execute('SELECT "lastMutationID" FROM zero_0.clients').fetchone() == (7,)
