"""Row changes: whole transactions, each key once, and nothing that SQLite does behind triggers is missed."""

import sqlite3

import pytest

from changesource_sdk.adapter import CreateTable, Delete, DropTable, Insert, Update
from changesource_sdk.errors import AdapterError, ResyncRequired
from changesource_sdk.positions import Position
from tests.adapters.sqlite.following import Follower

PEOPLE = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, email TEXT UNIQUE)"


def test_a_batch_holds_whole_transactions_and_each_key_once(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    follower = Follower(path)
    db.execute("BEGIN")
    db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    assert follower.tail.next_batch() is None
    db.execute("UPDATE t SET v = 'c' WHERE id = 1")
    db.execute("COMMIT")
    db.execute("DELETE FROM t WHERE id = 2")
    changes = follower.batch()
    assert sorted(changes, key=repr) == [Delete("t", {"id": 2}), Insert("t", {"id": 1, "v": "c"})]


def test_an_update_of_a_known_row_is_an_update(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, v REAL); INSERT INTO t VALUES (1, 0.5)")
    follower = Follower(path)
    db.execute("UPDATE t SET v = 0.1")
    assert follower.batch() == [Update("t", {"id": 1, "v": 0.1})]


def test_a_changed_key_is_a_delete_and_an_insert(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id TEXT PRIMARY KEY); INSERT INTO t VALUES ('old')")
    follower = Follower(path)
    db.execute("UPDATE t SET id = 'new'")
    assert {type(change) for change in follower.batch()} == {Delete, Insert}


def test_a_key_respelled_under_its_collation_is_another_key(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id TEXT PRIMARY KEY COLLATE NOCASE, v TEXT); INSERT INTO t VALUES ('a', 'x')")
    follower = Follower(path)
    db.execute("UPDATE t SET id = 'A'")
    assert Delete("t", {"id": "a"}) in follower.batch()
    db.execute("REPLACE INTO t VALUES ('a', 'y')")
    assert Delete("t", {"id": "A"}) in follower.batch()


def test_rows_removed_by_replace_are_deleted(db: sqlite3.Connection, path: str) -> None:
    db.executescript(f"{PEOPLE}; INSERT INTO people VALUES (1, 'Ann', 'x'), (2, 'Bob', 'y'), (3, 'Cid', 'z')")
    follower = Follower(path)
    db.execute("BEGIN")
    db.execute("REPLACE INTO people VALUES (4, 'Dan', 'x')")
    db.execute("UPDATE people SET email = 'w' WHERE id = 4")
    db.execute("UPDATE OR REPLACE people SET email = 'y' WHERE id = 3")
    db.execute("COMMIT")
    changes = follower.batch()
    assert {change.key["id"] for change in changes if isinstance(change, Delete)} == {1, 2}


def test_rows_removed_through_a_unique_index_are_deleted_if_asked_for(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT); CREATE UNIQUE INDEX u ON t (v)")
    db.execute("INSERT INTO t VALUES (1, 'x')")
    follower = Follower(path, exact_replace=True)
    db.execute("REPLACE INTO t VALUES (2, 'x')")
    assert follower.batch() == [Delete("t", {"id": 1}), Insert("t", {"id": 2, "v": "x"})]


def test_values_swapped_under_a_unique_index_are_sent_as_whole_rows(db: sqlite3.Connection, path: str) -> None:
    db.executescript(f"{PEOPLE}; INSERT INTO people VALUES (1, 'Ann', 'x'), (2, 'Bob', 'y')")
    follower = Follower(path)
    db.executescript(
        "BEGIN; UPDATE people SET email = NULL WHERE id = 1; UPDATE people SET email = 'x' WHERE id = 2;"
        "UPDATE people SET email = 'y' WHERE id = 1; COMMIT"
    )
    assert {type(change) for change in follower.batch()} == {Insert}


def test_cascades_upserts_and_the_applications_triggers_are_seen(db: sqlite3.Connection, path: str) -> None:
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("CREATE TABLE tree (id INTEGER PRIMARY KEY, up INTEGER REFERENCES tree ON DELETE CASCADE, seen INTEGER)")
    db.execute("CREATE TRIGGER mark AFTER INSERT ON tree BEGIN UPDATE tree SET seen = 1 WHERE id = NEW.id; END")
    follower = Follower(path)
    db.execute("INSERT INTO tree (id, up) VALUES (1, NULL), (2, 1), (3, 2)")
    assert follower.batch()[-1] == Insert("tree", {"id": 3, "up": 2, "seen": 1})
    db.execute("INSERT INTO tree (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET seen = 2")
    assert follower.batch() == [Update("tree", {"id": 1, "up": None, "seen": 2})]
    db.execute("DELETE FROM tree WHERE id = 1")
    assert follower.batch() == [Delete("tree", {"id": number}) for number in (1, 2, 3)]


def test_capturing_does_not_disturb_what_the_application_sees(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE)")
    Follower(path)
    db.execute("INSERT INTO t VALUES (77, 'a'), (78, 'b')")
    assert db.execute("SELECT last_insert_rowid()").fetchone() == (78,)
    assert db.execute("UPDATE t SET v = v || '!'").rowcount == 2


def test_a_null_key_is_refused_while_it_is_there_and_forgotten_afterwards(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id TEXT PRIMARY KEY)")
    follower = Follower(path)
    position = follower.tail.position.to_json()
    db.execute("INSERT INTO t VALUES (NULL)")
    with pytest.raises(AdapterError, match="null-key"):
        follower.batch()
    db.execute("UPDATE t SET id = 'given'")
    again = follower.resumed(position).next_batch()
    assert again is not None
    assert list(again.changes) == [Insert("t", {"id": "given"})]


def test_a_table_rebuilt_by_hand_is_sent_anew(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, n TEXT); INSERT INTO t VALUES (1, '5')")
    follower = Follower(path)
    db.executescript(
        "BEGIN; CREATE TABLE new_t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL); INSERT INTO new_t SELECT * FROM t;"
        "DROP TABLE t; ALTER TABLE new_t RENAME TO t; COMMIT"
    )
    drop, create, row = follower.batch()
    assert drop == DropTable("t")
    assert isinstance(create, CreateTable)
    assert row == Insert("t", {"id": 1, "n": 5})


def test_a_large_batch_is_read_while_it_is_consumed(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    follower = Follower(path)
    numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
    db.execute(f"{numbers} INSERT INTO t SELECT i, 'v' FROM n")
    transaction = follower.tail.next_batch()
    assert transaction is not None
    db.execute("DELETE FROM t")
    assert sum(isinstance(change, Insert) for change in transaction.changes) == 5000
    following = follower.tail.next_batch()
    assert following is not None
    assert sum(isinstance(change, Delete) for change in following.changes) == 5000


def test_a_batch_that_was_given_up_leaves_the_reader_usable(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    follower = Follower(path)
    db.execute(
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 3000) INSERT INTO t SELECT i FROM n"
    )
    abandoned = follower.tail.next_batch()
    assert abandoned is not None
    next(iter(abandoned.changes))
    db.execute("INSERT INTO t VALUES (9999)")
    assert follower.batch() == [Insert("t", {"id": 9999})]


def test_a_position_that_cannot_be_continued_asks_for_a_new_snapshot(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    follower = Follower(path)
    origin = follower.tail.position.origin
    db.execute("INSERT INTO t VALUES (1), (2), (3)")
    follower.batch()
    db.execute("DELETE FROM _changesource_changes WHERE seq < 3")
    cases: list[tuple[Position, str]] = [
        (17, "not made by this adapter"),
        ({"origin": "other", "seq": 3, "schema": 1}, "the database file was replaced"),
        ({"origin": origin, "seq": 9, "schema": 1}, "went back to an earlier state"),
        ({"origin": origin, "seq": 1, "schema": 1}, "taken by another reader"),
        ({"origin": origin, "seq": 3, "schema": 9}, "schema version 9 is not kept"),
    ]
    for position, words in cases:
        with pytest.raises(ResyncRequired, match=words):
            follower.resumed(position)
