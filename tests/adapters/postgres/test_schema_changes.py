"""Schema changes through a real stream: after each, a consumer has what a new snapshot would give."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.postgres.settings import PostgresSettings
from tests.adapters.postgres.following import Follower
from tests.support.peers.postgres_server import PostgresServer

CLEAN = """
DROP TABLE IF EXISTS item, part, x, thing, fresh, copied, log, log_1, log_2 CASCADE;
DROP SCHEMA IF EXISTS aside CASCADE;
DROP TYPE IF EXISTS mood, tone, tint;
"""
START = """
CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(8,2), at timestamp);
INSERT INTO item SELECT n, 'item ' || n, n * 1.25, timestamp '2024-01-01' + n * interval '1 h'
  FROM generate_series(1, 5) n;
CREATE TABLE part (id int PRIMARY KEY, item int, code text NOT NULL UNIQUE);
INSERT INTO part SELECT n, n, 'c' || n FROM generate_series(1, 3) n;
"""
SCENARIOS = {
    "add a column": ["ALTER TABLE item ADD COLUMN note text", "UPDATE item SET note = 'x' WHERE id = 1"],
    "add a column with a default": ["ALTER TABLE item ADD COLUMN n int NOT NULL DEFAULT 7"],
    "add a column with a text default": ["ALTER TABLE item ADD COLUMN s varchar(9) NOT NULL DEFAULT 'it''s'"],
    "add a column with a computed default": ["ALTER TABLE item ADD COLUMN made timestamptz NOT NULL DEFAULT now()"],
    "add a column with a default per row": ["ALTER TABLE item ADD COLUMN u uuid NOT NULL DEFAULT gen_random_uuid()"],
    "add a serial column": ["ALTER TABLE item ADD COLUMN nr serial"],
    "add and change a default at once": [
        "BEGIN; ALTER TABLE item ADD COLUMN n int DEFAULT 1; ALTER TABLE item ALTER COLUMN n SET DEFAULT 2; COMMIT",
        "INSERT INTO item (id) VALUES (77)",
    ],
    "drop a column": ["ALTER TABLE item DROP COLUMN price", "INSERT INTO item VALUES (9, 'nine', now())"],
    "drop a column that is indexed": ["ALTER TABLE part DROP COLUMN code"],
    "drop and add a column of the same name": [
        "ALTER TABLE item DROP COLUMN name, ADD COLUMN name text",
        "INSERT INTO item (id, name) VALUES (10, 'ten')",
    ],
    "rename a column": ["ALTER TABLE item RENAME COLUMN name TO title", "UPDATE item SET title = 'T' WHERE id = 2"],
    "swap two columns' names": [
        "BEGIN; ALTER TABLE part RENAME COLUMN id TO x; ALTER TABLE part RENAME COLUMN item TO id;"
        "ALTER TABLE part RENAME COLUMN x TO item; COMMIT",
        "INSERT INTO part (id, item, code) VALUES (5, 50, 'fifty')",
    ],
    "change a type from number to text": ["ALTER TABLE item ALTER COLUMN price TYPE text"],
    "change a type from timestamp to timestamptz": ["ALTER TABLE item ALTER COLUMN at TYPE timestamptz"],
    "change a type from timestamp to text": ["ALTER TABLE item ALTER COLUMN at TYPE text"],
    "change values but not the type": ["ALTER TABLE item ALTER COLUMN price TYPE numeric(8,2) USING price * 2"],
    "change the scale": ["ALTER TABLE item ALTER COLUMN price TYPE numeric(8,1)"],
    "widen a length": [
        "ALTER TABLE item ADD COLUMN v varchar(3) DEFAULT 'abc'",
        "ALTER TABLE item ALTER v TYPE varchar(9)",
    ],
    "make a column not null and back": [
        "ALTER TABLE item ALTER COLUMN name SET NOT NULL",
        "ALTER TABLE item ALTER COLUMN name DROP NOT NULL",
    ],
    "create a table": ["CREATE TABLE fresh (id text PRIMARY KEY, n int)", "INSERT INTO fresh VALUES ('a', 1)"],
    "create a table with rows": [
        "CREATE TABLE copied AS SELECT * FROM item",
        "ALTER TABLE copied ADD PRIMARY KEY (id)",
    ],
    "create and fill a table in one transaction": [
        "BEGIN; CREATE TABLE fresh (id int PRIMARY KEY); INSERT INTO fresh VALUES (1), (2);"
        "UPDATE fresh SET id = 3 WHERE id = 2; COMMIT",
        "DELETE FROM fresh WHERE id = 1",
    ],
    "drop a table": ["DROP TABLE part"],
    "drop and create a table": [
        "DROP TABLE part; CREATE TABLE part (id text PRIMARY KEY); INSERT INTO part VALUES ('p')"
    ],
    "rename a table": ["ALTER TABLE item RENAME TO thing", "INSERT INTO thing (id) VALUES (11)"],
    "swap two tables' names": [
        "BEGIN; ALTER TABLE item RENAME TO x; ALTER TABLE part RENAME TO item; ALTER TABLE x RENAME TO part; COMMIT",
        "INSERT INTO part (id, name) VALUES (12, 'twelve')",
    ],
    "move a table out of the publication and back": [
        "CREATE SCHEMA IF NOT EXISTS aside; ALTER TABLE part SET SCHEMA aside",
        "INSERT INTO aside.part VALUES (6, 6, 'six')",
        "ALTER TABLE aside.part SET SCHEMA public",
        "INSERT INTO part VALUES (7, 7, 'seven')",
    ],
    "create and drop an index": ["CREATE INDEX item_name ON item (name, price DESC)", "DROP INDEX item_name"],
    "create a unique index": ["CREATE UNIQUE INDEX item_at ON item (at)"],
    "create an index concurrently": ["CREATE INDEX CONCURRENTLY item_name ON item (name)"],
    "rename an index": ["CREATE INDEX item_name ON item (name)", "ALTER INDEX item_name RENAME TO item_by_name"],
    "change the primary key": [
        "ALTER TABLE part DROP CONSTRAINT part_pkey, ADD PRIMARY KEY (code)",
        "UPDATE part SET code = 'new' WHERE id = 1",
    ],
    "rename a key column": ["ALTER TABLE item RENAME COLUMN id TO nr", "UPDATE item SET nr = 50 WHERE nr = 5"],
    "partition with rows is attached": [
        "CREATE TABLE log (id int, day int, PRIMARY KEY (id, day)) PARTITION BY LIST (day)",
        "CREATE TABLE log_1 PARTITION OF log FOR VALUES IN (1)",
        "INSERT INTO log VALUES (1, 1)",
        "CREATE TABLE log_2 (id int, day int, PRIMARY KEY (id, day)); INSERT INTO log_2 VALUES (2, 2)",
        "ALTER TABLE log ATTACH PARTITION log_2 FOR VALUES IN (2)",
        "INSERT INTO log VALUES (3, 2)",
        "ALTER TABLE log DETACH PARTITION log_1",
    ],
    "a role's temporary table is nobody's business": ["CREATE TEMP TABLE t (id int); DROP TABLE t"],
    "add an enum column": ["CREATE TYPE mood AS ENUM ('ok', 'bad'); ALTER TABLE item ADD COLUMN m mood DEFAULT 'ok'"],
    "rename an enum type": [
        "CREATE TYPE tone AS ENUM ('a'); ALTER TABLE item ADD t tone DEFAULT 'a'",
        "ALTER TYPE tone RENAME TO tint",
    ],
    "a column that cannot be synced becomes one that can": [
        "ALTER TABLE item ADD COLUMN raw bytea DEFAULT '\\x6162'",
        "ALTER TABLE item ALTER COLUMN raw TYPE text USING convert_from(raw, 'UTF8')",
    ],
    "several tables in one statement": ["TRUNCATE item, part", "INSERT INTO item (id) VALUES (1)"],
    "undone": ["BEGIN; ALTER TABLE item ADD COLUMN never int; ROLLBACK", "INSERT INTO item (id) VALUES (30)"],
    "partly undone": [
        "BEGIN; ALTER TABLE item ADD COLUMN kept int; SAVEPOINT s; ALTER TABLE item ADD COLUMN never int;"
        "ROLLBACK TO s; INSERT INTO item (id, kept) VALUES (31, 3); COMMIT",
    ],
}


@pytest.fixture(scope="module")
def shared(logical_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Follower]]:
    """The follower that scenarios share; a failed one leaves the place empty."""
    holder: list[Follower] = []
    yield holder
    for follower in holder:
        follower.drop()


@pytest.fixture
def follower(
    shared: list[Follower], logical_postgres: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Follower]:
    """A follower of a database in its first state."""
    if not shared:
        settings = PostgresSettings.parse(logical_postgres.create_database("store"), slot=f"s_{secrets.token_hex(6)}")
        shared.append(Follower(settings, tmp_path))
    (follower,) = shared
    shared.clear()
    follower.run(CLEAN, START)
    follower.catch_up()
    yield follower
    follower.assert_same()
    shared.append(follower)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_consumer_follows(name: str, follower: Follower) -> None:
    for statement in SCENARIOS[name]:
        follower.run(statement)
        follower.catch_up()


def test_a_consumer_that_is_far_behind_follows(follower: Follower) -> None:
    for statements in SCENARIOS.values():
        follower.run(CLEAN, START, *statements)
    follower.catch_up()
    follower.assert_same()
