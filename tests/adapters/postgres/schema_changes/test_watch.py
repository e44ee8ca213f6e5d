"""Schema changes where no event trigger can be made: looked for, announced in the stream, and followed all the same."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from adapters.postgres.schema_changes import watch
from adapters.postgres.schema_changes.capture import has_triggers
from adapters.postgres.settings import PostgresSettings
from tests.adapters.postgres.following import Follower
from tests.support.peers.postgres_server import PostgresServer
from tests.support.waiting import until

START = """
CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(8,2));
INSERT INTO item SELECT n, 'item ' || n, n * 1.25 FROM generate_series(1, 5) n;
"""
SCENARIOS = {
    "a new table": ["CREATE TABLE fresh (id int PRIMARY KEY)", "INSERT INTO fresh VALUES (1)"],
    "a new column that is written at once": ["ALTER TABLE item ADD COLUMN n int DEFAULT 3", "UPDATE item SET n = id"],
    "a default that changed since": [
        "ALTER TABLE item ADD COLUMN k int DEFAULT 1",
        "ALTER TABLE item ALTER COLUMN k SET DEFAULT 2",
    ],
    "a renamed column that is written at once": [
        "ALTER TABLE item RENAME COLUMN name TO title",
        "UPDATE item SET title = 'x' WHERE id = 1",
    ],
    "a changed type": [
        "ALTER TABLE item ALTER COLUMN price TYPE text",
        "INSERT INTO item (id, price) VALUES (6, 'six')",
    ],
    "a renamed table": ["ALTER TABLE item RENAME TO thing", "DELETE FROM thing WHERE id = 2"],
    "a table that came and went": ["CREATE TABLE gone (id int PRIMARY KEY)", "DROP TABLE gone"],
    "a dropped table": ["DROP TABLE thing"],
}


@pytest.fixture(scope="module")
def follower(logical_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Follower]:
    """A follower whose role owns its tables and is no superuser."""
    role = f"role_{secrets.token_hex(4)}"
    url = logical_postgres.create_database("store")
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        db.execute(f"ALTER DATABASE {name} OWNER TO {role}; ALTER SCHEMA public OWNER TO {role}".encode())
        db.execute(b"CREATE PUBLICATION chosen FOR TABLES IN SCHEMA public")
    own = url.replace("changesource@", f"{role}@")
    with psycopg.connect(own, autocommit=True) as db:
        db.execute(START.encode())
    settings = PostgresSettings.parse(own, publication="chosen", slot=f"s_{secrets.token_hex(6)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "ALONE_S", 0.1)
        made = Follower(settings, tmp_path_factory.mktemp("watch"))
        yield made
        made.drop()


def _is_same(follower: Follower) -> bool:
    follower.catch_up()
    try:
        follower.assert_same()
    except AssertionError:
        return False
    return True


def test_no_trigger_was_made(follower: Follower) -> None:
    assert not has_triggers(follower.app)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_consumer_has_the_same_soon_after(name: str, follower: Follower) -> None:
    follower.run(*SCENARIOS[name])
    until(lambda: _is_same(follower), f"the mirror to follow {name}")
    follower.run("INSERT INTO fence VALUES (-1) ON CONFLICT DO NOTHING")
    follower.catch_up()
    follower.assert_same()


def test_a_dropped_trigger_is_noticed(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WITH_TRIGGERS_S", 0.2)
    follower = Follower(PostgresSettings.parse(dsn, slot=f"s_{secrets.token_hex(6)}"), tmp_path)
    follower.run("DROP EVENT TRIGGER changesource_announce", "CREATE TABLE late (id int PRIMARY KEY)")
    until(lambda: _is_same(follower), "the table to be found")
    assert "late" in follower.mirror.tables
    follower.drop()
