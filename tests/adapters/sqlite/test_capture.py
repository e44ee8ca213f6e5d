"""What the capture leaves in the database, and what it does not get in the way of."""

import logging
import sqlite3

import pytest

from adapters.sqlite.capture import install, latest_version, prune, recorded_range, stored_version, uninstall
from adapters.sqlite.catalog.model import Catalog
from adapters.sqlite.settings import Selection
from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    Insert,
    RenameTable,
)
from tests.adapters.sqlite.following import Follower


def schema(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_installing_again_changes_nothing(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE)")
    first, before = install(db, Selection()), schema(db)
    changes = db.total_changes
    assert install(db, Selection()) == first
    assert (schema(db), db.total_changes) == (before, changes)


def test_uninstalling_leaves_the_database_as_it_was(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE)")
    before = schema(db)
    install(db, Selection())
    assert schema(db) != before
    uninstall(db)
    assert schema(db) == before


def test_a_catalog_survives_being_stored(db: sqlite3.Connection) -> None:
    db.execute('CREATE TABLE "ü""t" (id TEXT NOT NULL, n REAL, b, UNIQUE (id, n), PRIMARY KEY (id)) WITHOUT ROWID')
    db.execute('CREATE INDEX i ON "ü""t" (n DESC, b)')
    catalog = install(db, Selection()).catalog
    assert Catalog.from_json(catalog.to_json()) == catalog
    stored = latest_version(db)
    assert stored is not None
    assert stored.catalog == catalog


def test_a_wider_key_widens_the_record(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE narrow (id INTEGER PRIMARY KEY)")
    follower = Follower(path)
    db.execute("CREATE TABLE wide (a TEXT, b TEXT, c TEXT, PRIMARY KEY (a, b, c))")
    follower.batch()
    db.execute("INSERT INTO wide VALUES ('x', 'y', 'z')")
    assert follower.batch() == [Insert("wide", {"a": "x", "b": "y", "c": "z"})]


def test_pruning_keeps_the_newest_so_that_numbers_only_grow(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    install(db, Selection())
    db.execute("INSERT INTO t VALUES (1), (2), (3)")
    prune(db, 3, 1)
    assert recorded_range(db) == (3, 3)
    db.execute("INSERT INTO t VALUES (4)")
    assert recorded_range(db) == (3, 4)
    assert stored_version(db, 1) is not None


def test_columns_and_tables_can_be_dropped_in_the_breath_that_drops_their_index(
    db: sqlite3.Connection, path: str
) -> None:
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, mail TEXT, n INTEGER); CREATE UNIQUE INDEX u ON t (mail)")
    follower = Follower(path)
    db.executescript("BEGIN; DROP INDEX u; ALTER TABLE t DROP COLUMN mail; ALTER TABLE t RENAME TO s; COMMIT")
    kinds = [type(change) for change in follower.batch()]
    assert kinds[:2] == [DropIndex, RenameTable]
    assert kinds[-1] is DropColumn


def test_a_table_that_loses_its_key_leaves_the_sync_and_comes_back_with_one(db: sqlite3.Connection, path: str) -> None:
    db.executescript(
        "CREATE TABLE t (a TEXT NOT NULL, b TEXT); CREATE UNIQUE INDEX u ON t (a); INSERT INTO t VALUES (1, 2)"
    )
    follower = Follower(path)
    db.execute("DROP INDEX u")
    assert follower.batch() == [DropTable("t")]
    db.execute("CREATE UNIQUE INDEX v ON t (a)")
    create, row = follower.batch()
    assert isinstance(create, CreateTable)
    assert row == Insert("t", {"a": "1", "b": "2"})


def test_a_renamed_column_is_told_from_a_dropped_and_an_added_one(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT); INSERT INTO t VALUES (1, 'x', 'y')")
    follower = Follower(path)
    db.execute('ALTER TABLE t RENAME COLUMN b TO "c ""d"""')
    assert [type(change) for change in follower.batch()] == [AlterColumn]
    db.executescript('BEGIN; ALTER TABLE t DROP COLUMN "c ""d"""; ALTER TABLE t ADD COLUMN e TEXT; COMMIT')
    assert [type(change) for change in follower.batch()] == [DropColumn, AddColumn]


def test_a_column_dropped_and_added_under_the_same_name_sends_the_rows_again(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x')")
    follower = Follower(path)
    db.executescript("BEGIN; ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a TEXT; COMMIT")
    assert follower.batch() == [Insert("t", {"id": 1, "a": None})]


def test_vacuum_and_analyze_are_no_changes(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x')")
    follower = Follower(path)
    for statement in ("VACUUM", "ANALYZE", "VACUUM"):
        db.execute(statement)
        assert follower.tail.next_batch() is None


def test_a_table_whose_triggers_were_tampered_with_is_sent_anew(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)")
    follower = Follower(path)
    db.execute("DROP TRIGGER _changesource_1_insert")
    db.execute("INSERT INTO t VALUES (2)")
    rows = [change.row for change in follower.batch() if isinstance(change, Insert)]
    assert rows == [{"id": 1}, {"id": 2}]


def test_other_tables_chosen_after_a_restart_come_and_go(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (id INTEGER PRIMARY KEY)")
    db.execute("INSERT INTO b VALUES (1)")
    follower = Follower(path, include=("a",))
    follower.selection = Selection(include=("b",))
    follower.tail = follower.resumed(follower.snapshot.position)
    drop, create, row = follower.batch()
    assert (type(drop).__name__, type(create).__name__) == ("DropTable", "CreateTable")
    assert row == Insert("b", {"id": 1})


def test_what_is_not_synced_is_said_once(db: sqlite3.Connection, caplog: pytest.LogCaptureFixture) -> None:
    db.executescript("CREATE TABLE said_once (a TEXT); CREATE TABLE t (id INTEGER PRIMARY KEY, said_blob BLOB)")
    with caplog.at_level(logging.WARNING):
        install(db, Selection())
        install(db, Selection())
    texts = [record.message for record in caplog.records]
    assert sum("table said_once is not synced" in text for text in texts) == 1
    assert sum("column t.said_blob is replicated but not synced" in text for text in texts) == 1
