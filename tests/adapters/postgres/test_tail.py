"""Rows through a real stream: a consumer gets what was committed, once and in order; it is confirmed when durable."""

from __future__ import annotations

import threading

import psycopg
import pytest

from adapters.postgres import tail as stream_module
from adapters.postgres.connection import Connection
from adapters.postgres.replication.slot import slot_state
from adapters.postgres.tail import PostgresTail
from changesource_sdk.adapter import CreateTable, Delete, DropColumn, DropTable, Insert, Truncate, Update
from changesource_sdk.errors import AdapterError, ResyncRequired
from protocol.watermark import from_int
from tests.adapters.postgres.conftest import MakeFollower
from tests.support.waiting import until

ITEM = "CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(8,2))"


def test_every_kind_of_row_change_arrives_in_its_transaction(following: MakeFollower) -> None:
    follower = following(ITEM)
    follower.run(
        "INSERT INTO item VALUES (1, 'one', 1.5), (2, NULL, 2)",
        "UPDATE item SET name = 'uno' WHERE id = 1",
        "UPDATE item SET id = 3 WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "TRUNCATE item",
    )
    assert follower.catch_up() == [
        [Insert("item", {"id": 1, "name": "one", "price": 1.5}), Insert("item", {"id": 2, "name": None, "price": 2.0})],
        [Update("item", {"id": 1, "name": "uno", "price": 1.5})],
        [Update("item", {"id": 3, "name": "uno", "price": 1.5}, {"id": 1})],
        [Delete("item", {"id": 2})],
        [Truncate(["item"])],
    ]
    assert all(t.watermark == from_int(t.position) for t in follower.seen if isinstance(t.position, int))
    assert all(t.commit_time_ms and t.commit_time_ms > 1.7e12 for t in follower.seen)


def test_a_large_value_that_was_not_touched_keeps_what_it_is(following: MakeFollower) -> None:
    follower = following(
        "CREATE TABLE doc (id int PRIMARY KEY, body text, n int)",
        "ALTER TABLE doc ALTER COLUMN body SET STORAGE EXTERNAL",
    )
    follower.run("INSERT INTO doc VALUES (1, repeat('x', 100000), 1)", "UPDATE doc SET n = 2")
    assert follower.catch_up()[1] == [Update("doc", {"id": 1, "n": 2})]
    follower.run("UPDATE doc SET id = 5")
    follower.catch_up()
    follower.assert_same()


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX item_code"], ids=["default", "full", "index"])
def test_rows_are_found_again_under_every_replica_identity(identity: str, following: MakeFollower) -> None:
    follower = following(
        "CREATE TABLE item (id int PRIMARY KEY, code text NOT NULL, body text)",
        "CREATE UNIQUE INDEX item_code ON item (code)",
        "ALTER TABLE item ALTER COLUMN body SET STORAGE EXTERNAL",
        f"ALTER TABLE item REPLICA IDENTITY {identity}",
    )
    follower.run(
        "INSERT INTO item SELECT n, 'c' || n, repeat('y', 5000) FROM generate_series(1, 4) n",
        "UPDATE item SET id = 10 WHERE id = 1",
        "UPDATE item SET code = 'new' WHERE id = 2",
        "UPDATE item SET id = 30, code = 'thirty', body = NULL WHERE id = 3",
        "DELETE FROM item WHERE id = 4",
    )
    follower.catch_up()
    follower.assert_same()


def test_a_table_without_identity_grows(following: MakeFollower) -> None:
    follower = following("CREATE TABLE line (text text)", "INSERT INTO line VALUES ('a')")
    follower.run("INSERT INTO line VALUES ('b'), ('b')", "TRUNCATE line", "INSERT INTO line VALUES ('c')")
    follower.catch_up()
    follower.assert_same()


def test_a_row_that_enters_or_leaves_the_filter_comes_and_goes(following: MakeFollower) -> None:
    follower = following(
        "CREATE TABLE item (id int, open bool, body text, PRIMARY KEY (id, open))",
        "ALTER TABLE item ALTER COLUMN body SET STORAGE EXTERNAL",
        "INSERT INTO item VALUES (1, true, repeat('a', 5000)), (2, false, repeat('b', 5000))",
        "CREATE TABLE fence (n int PRIMARY KEY)",
        "CREATE PUBLICATION chosen FOR TABLE item WHERE (open), fence",
        publication="chosen",
    )
    follower.run("UPDATE item SET open = NOT open", "INSERT INTO item VALUES (3, false, 'c'), (4, true, 'd')")
    follower.catch_up()
    follower.assert_same()
    assert {row["id"] for row in follower.mirror.tables["item"].rows.values()} == {2, 4}


def test_a_column_list_holds_in_the_stream_as_in_the_snapshot(following: MakeFollower) -> None:
    follower = following(
        "CREATE TABLE item (id int PRIMARY KEY, open_ text, secret text)",
        "INSERT INTO item VALUES (1, 'o', 's')",
        "CREATE TABLE fence (n int PRIMARY KEY)",
        "CREATE PUBLICATION chosen FOR TABLE item (id, open_), fence",
        publication="chosen",
    )
    follower.run("UPDATE item SET open_ = 'x', secret = 'y'")
    assert follower.changes() == [Update("item", {"id": 1, "open_": "x"})]
    follower.run("ALTER PUBLICATION chosen SET TABLE item (id, secret), fence", "INSERT INTO item VALUES (2, 'p', 't')")
    follower.catch_up()
    follower.assert_same()


def test_tables_join_and_leave_a_publication_with_their_rows(following: MakeFollower) -> None:
    follower = following(
        "CREATE TABLE item (id int PRIMARY KEY)",
        "INSERT INTO item SELECT generate_series(1, 100)",
        "CREATE TABLE fence (n int PRIMARY KEY)",
        "CREATE PUBLICATION chosen FOR TABLE fence",
        publication="chosen",
    )
    follower.run("ALTER PUBLICATION chosen ADD TABLE item", "DELETE FROM item WHERE id > 50")
    follower.catch_up()
    follower.assert_same()
    assert len(follower.mirror.tables["item"].rows) == 50
    follower.run("ALTER PUBLICATION chosen DROP TABLE item", "DELETE FROM item WHERE id > 10")
    follower.catch_up()
    follower.assert_same()
    assert "item" not in follower.mirror.tables


def test_names_of_any_case_and_schema_arrive(following: MakeFollower) -> None:
    follower = following(
        'CREATE SCHEMA "Sales"; CREATE TABLE "Sales"."Order" ("orderID" int PRIMARY KEY, "select" text)',
        "CREATE TABLE fence (n int PRIMARY KEY)",
        'CREATE PUBLICATION chosen FOR TABLE "Sales"."Order", fence',
        publication="chosen",
    )
    follower.run("""INSERT INTO "Sales"."Order" VALUES (1, 'x')""")
    assert follower.changes() == [Insert("Sales.Order", {"orderID": 1, "select": "x"})]


def test_sub_transactions_arrive_as_far_as_they_were_kept(following: MakeFollower) -> None:
    follower = following(ITEM)
    follower.run(
        "BEGIN; INSERT INTO item VALUES (1); SAVEPOINT s; INSERT INTO item VALUES (2); ROLLBACK TO s;"
        "INSERT INTO item VALUES (3); COMMIT"
    )
    (changes,) = follower.catch_up()
    assert [change.row["id"] for change in changes if isinstance(change, Insert)] == [1, 3]


def test_a_transaction_larger_than_the_memory_for_it_arrives_whole(following: MakeFollower) -> None:
    follower = following(ITEM)
    follower.close()
    follower.stream = PostgresTail(follower.settings, spill_bytes=5_000)
    follower._transactions = follower.stream.transactions(follower.position)
    follower.run("INSERT INTO item SELECT n, 'item ' || n, n FROM generate_series(1, 600) n")
    (changes,) = follower.catch_up()
    assert len(changes) == 600
    follower.assert_same()


def test_a_restart_continues_after_the_last_durable_transaction(following: MakeFollower) -> None:
    follower = following(ITEM)
    follower.run("INSERT INTO item VALUES (1)")
    follower.catch_up()
    follower.run("INSERT INTO item VALUES (2)", "ALTER TABLE item ADD COLUMN more int", "UPDATE item SET more = 1")
    follower.restart()
    follower.run("INSERT INTO item VALUES (3)")
    follower.catch_up()
    follower.assert_same()


def test_rows_read_ahead_are_not_applied_twice_after_a_restart(following: MakeFollower) -> None:
    follower = following("CREATE TABLE fence (n int PRIMARY KEY)")
    follower.run("CREATE TABLE tally (id int PRIMARY KEY, n int)", "INSERT INTO tally VALUES (1, 0)")
    for _ in range(5):
        follower.run("UPDATE tally SET n = n + 1", "DELETE FROM tally WHERE id = 2", "INSERT INTO tally VALUES (2, 2)")
    created = follower._next()
    assert Insert("tally", {"id": 1, "n": 5}) in created
    follower.restart()
    assert follower.catch_up() == []
    follower.assert_same()


def confirmed(db: Connection, slot: str) -> int:
    """Up to where the server believes that the consumer has everything."""
    state = slot_state(db, slot)
    assert state is not None
    return state.confirmed


def test_the_server_is_told_only_what_was_acknowledged(following: MakeFollower, db: Connection) -> None:
    follower = following(ITEM)
    slot = follower.settings.slot
    before = confirmed(db, slot)
    follower.run("INSERT INTO item VALUES (1)")
    transaction = next(follower._transactions)
    assert confirmed(db, slot) == before
    assert list(transaction.changes) == [Insert("item", {"id": 1, "name": None, "price": None})]
    follower.stream.acknowledge(transaction.position)
    until(lambda: confirmed(db, slot) == transaction.position, "the confirmation")


def test_the_slot_moves_on_though_nothing_published_changes(
    following: MakeFollower, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "QUIET_BYTES", 100_000)
    follower = following(ITEM, "CREATE SCHEMA aside; CREATE TABLE aside.noise (n int, t text)")
    db.execute("INSERT INTO aside.noise SELECT n, repeat('z', 100) FROM generate_series(1, 5000) n")
    transaction = next(follower._transactions)
    assert list(transaction.changes) == []
    assert isinstance(transaction.position, int)
    assert transaction.position > follower.position
    follower.stream.acknowledge(transaction.position)
    until(lambda: confirmed(db, follower.settings.slot) == transaction.position, "the slot to move on")


def test_a_slot_that_is_gone_asks_for_a_new_snapshot(following: MakeFollower, db: Connection) -> None:
    follower = following(ITEM)
    follower.catch_up()
    follower.drop_slot()
    follower._open()
    with pytest.raises(ResyncRequired, match="is gone"):
        follower._next()
    follower.begin()
    follower.run("INSERT INTO item VALUES (5)")
    follower.catch_up()
    follower.assert_same()


def test_a_slot_ahead_of_the_log_asks_for_a_new_snapshot(following: MakeFollower, db: Connection) -> None:
    follower = following(ITEM)
    behind = follower.position
    follower.run("INSERT INTO item VALUES (1)")
    follower.catch_up()
    until(lambda: confirmed(db, follower.settings.slot) > behind, "the confirmation")
    follower.close()
    follower.position = behind
    follower._open()
    with pytest.raises(ResyncRequired, match="ahead of the log"):
        follower._next()


def test_a_slot_read_by_another_is_named_with_its_reader(
    following: MakeFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "HELD_FOR_S", 0.3)
    follower = following(ITEM)
    follower.catch_up()
    with pytest.raises(AdapterError) as caught:
        next(PostgresTail(follower.settings).transactions(follower.position))
    assert caught.value.code == "slot-in-use"
    assert "pg_terminate_backend" in caught.value.fix


def test_a_reader_that_goes_away_is_waited_for(following: MakeFollower) -> None:
    follower = following(ITEM)
    follower.catch_up()
    old = follower._transactions, follower.stream
    follower._open()
    ending = threading.Timer(0.3, old[1].close)
    ending.start()
    follower.run("INSERT INTO item VALUES (1)")
    assert len(follower.changes()) == 1
    ending.join()


def test_a_publication_dropped_and_made_again_asks_for_a_new_snapshot(following: MakeFollower) -> None:
    follower = following(
        ITEM,
        "CREATE TABLE fence (n int PRIMARY KEY)",
        "CREATE PUBLICATION chosen FOR TABLE item, fence",
        publication="chosen",
    )
    follower.catch_up()
    follower.run("DROP PUBLICATION chosen", "INSERT INTO item VALUES (1)")
    with pytest.raises(ResyncRequired, match="publication"):
        follower._next()
    with pytest.raises(AdapterError, match="dropped while it was followed") as caught:
        follower.begin()
    assert 'CREATE PUBLICATION "chosen"' in caught.value.fix
    follower.run("CREATE PUBLICATION chosen FOR TABLE item, fence")
    follower.begin()
    follower.run("INSERT INTO item VALUES (2)")
    follower.catch_up()
    follower.assert_same()


def test_concurrent_schema_changes_do_not_undo_each_other(following: MakeFollower, dsn: str) -> None:
    follower = following(ITEM, "CREATE TABLE part (id int PRIMARY KEY)")
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second:
        first.execute("ALTER TABLE item ADD COLUMN a int")
        second.execute("ALTER TABLE part ADD COLUMN b int")
        second.execute("CREATE TABLE other (id int PRIMARY KEY)")
        second.commit()
        follower.run("INSERT INTO part VALUES (1, 2)")
        first.commit()
    follower.run("INSERT INTO item (id, a) VALUES (1, 3)", "INSERT INTO other VALUES (4)")
    changes = follower.changes()
    assert sum(isinstance(change, CreateTable) for change in changes) == 1
    assert not any(isinstance(change, DropTable | DropColumn) for change in changes)
    follower.assert_same()


def test_a_broken_announcement_does_not_stop_a_users_command(following: MakeFollower) -> None:
    follower = following(ITEM)
    follower.catch_up()
    follower.run("ALTER TABLE changesource_state.pipelines RENAME TO hidden", "ALTER TABLE item ADD COLUMN a int")
    follower.run("ALTER TABLE changesource_state.hidden RENAME TO pipelines", "UPDATE item SET a = 1")
    follower.catch_up()
    follower.assert_same()


def test_a_position_of_another_kind_asks_for_a_new_snapshot(following: MakeFollower) -> None:
    follower = following(ITEM)
    with pytest.raises(ResyncRequired, match="not made by this adapter"):
        next(follower.stream.transactions({"origin": "elsewhere"}))


def test_closing_ends_a_reader_that_waits(following: MakeFollower) -> None:
    follower = following(ITEM)
    follower.catch_up()
    threading.Timer(0.2, follower.stream.close).start()
    assert list(follower._transactions) == []
