"""A Delta table followed through its change feed, without Spark: one version, one transaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adapters.spark_tables.delta import feed as delta_feed
from changesource_sdk.adapter import AddColumn, AlterColumn, Change, Delete, Insert, Update
from tests.adapters.spark_tables.follower import Follower
from tests.support.workloads.delta_lake import Lake, people


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "people", people((1, "Ada"), (2, "Bob"), (3, None)))


def settings(*lakes: Lake, **more: object) -> dict[str, Any]:
    tables = {lake.path.name: {"delta": str(lake.path), "key": "id", **more} for lake in lakes}
    return {"tables": tables, "state": str(lakes[0].path.parent / "state")}


def kinds(changes: list[Change]) -> list[str]:
    return sorted(type(change).__name__ for change in changes)


def test_a_snapshot_shows_the_rows(lake: Lake) -> None:
    assert Follower(settings(lake)).rows("people") == lake.rows()


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda lake: lake.append(people((4, "Dan"))), ["Insert"]),
        (lambda lake: lake.update("id = 2", name="'Bea'"), ["Update"]),
        (lambda lake: lake.delete("id = 1"), ["Delete"]),
        (lambda lake: lake.merge(people((3, "Cy"), (4, "Dan"))), ["Insert", "Update"]),
        (lambda lake: lake.overwrite(people((1, "Ada"), (2, "Bo"), (9, "Zoe"))), ["Delete", "Insert", "Update"]),
        (lambda lake: lake.update("id = 2", id="20"), ["Delete", "Insert"]),
        (lambda lake: lake.delete("id > 0"), ["Delete", "Delete", "Delete"]),
    ],
    ids=["append", "update", "delete", "merge", "overwrite", "key", "all"],
)
def test_a_write_arrives_as_what_it_changed(lake: Lake, write: Callable[[Lake], None], expected: list[str]) -> None:
    follower = Follower(settings(lake))
    write(lake)
    (changes,) = follower.look()
    assert kinds(changes) == expected
    assert follower.rows("people") == lake.rows()
    assert follower.look() == []


def test_an_update_and_a_delete_carry_the_whole_row_before(lake: Lake) -> None:
    follower = Follower(settings(lake))
    lake.update("id = 2", name="'Bea'")
    lake.delete("id = 1")
    (updated,), (deleted,) = follower.look()
    assert updated == Update("people", {"id": 2, "name": "Bea"}, {"id": 2, "name": "Bob"})
    assert deleted == Delete("people", {"id": 1, "name": "Ada"})


def test_each_version_is_a_transaction_in_order_also_after_a_restart(lake: Lake) -> None:
    follower = Follower(settings(lake))
    for number in range(4, 8):
        lake.append(people((number, str(number))))
    taken = iter(follower.adapter.changes(follower.position))
    first, second = follower.take(next(taken)), follower.take(next(taken))
    follower.restart()
    assert [change.row["id"] for (change,) in (first, second, *follower.look()) if isinstance(change, Insert)] == [
        4,
        5,
        6,
        7,
    ]
    assert follower.rows("people") == lake.rows()


def test_versions_that_change_nothing_are_no_transactions_and_are_read_once(lake: Lake) -> None:
    lake.append(people((4, "Dan")))
    follower = Follower(settings(lake))
    lake.table.optimize.compact()
    lake.vacuum()
    lake.overwrite(people((1, "Ada"), (2, "Bob"), (3, None), (4, "Dan")))
    assert follower.look() == []
    lake.append(people((5, "Eve")))
    assert [kinds(changes) for changes in follower.look()] == [["Insert"]]
    assert follower.rows("people") == lake.rows()


def test_a_restore_arrives_as_the_rows_it_brings_back(lake: Lake) -> None:
    follower = Follower(settings(lake))
    lake.update("id = 2", name="'Bea'")
    lake.append(people((4, "Dan")))
    lake.table.restore(0)
    transactions = follower.look()
    assert kinds(transactions[-1]) == ["Delete", "Update"]
    assert follower.rows("people") == lake.rows()


def test_a_large_version_is_passed_on_unpaired(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_feed, "MOST_HELD", 3)
    follower = Follower(settings(lake))
    lake.merge(people((2, "Bea"), (3, "Cy"), (4, "Dan")))
    (changes,) = follower.look()
    assert [type(change) for change in changes] == [Delete, Delete, Insert, Insert, Insert]
    assert follower.rows("people") == lake.rows()


def test_an_added_column_comes_before_its_rows(lake: Lake) -> None:
    follower = Follower(settings(lake))
    lake.append(people((4, "Dan")))
    lake.append(people((5, "Eve")).append_column("age", pa.array([30], pa.int32())), schema_mode="merge")
    first, second = follower.look()
    assert kinds(first) == ["Insert"]
    assert isinstance(second[0], AddColumn)
    assert second[0].column.data_type == "int4"
    assert follower.rows("people") == lake.rows()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (pa.field("n", pa.int32()), pa.field("n", pa.int64()), ("int8", True)),
        (pa.field("n", pa.float32()), pa.field("n", pa.float64()), ("float8", True)),
        (pa.field("n", pa.int32()), pa.field("n", pa.int32(), nullable=False), ("int4", False)),
        (pa.field("n", pa.int32(), nullable=False), pa.field("n", pa.int32()), ("int4", True)),
    ],
)
def test_a_column_that_gets_wider_or_may_be_null_is_altered_before_its_rows(
    tmp_path: Path, old: pa.Field, new: pa.Field, told: tuple[str, bool]
) -> None:
    lake = Lake(tmp_path / "people", people((1, "Ada"), (2, "Bob")).append_column(old, pa.array([1, 2], old.type)))
    follower = Follower(settings(lake))
    lake.overwrite(
        people((1, "Ada"), (3, "Cy")).append_column(new, pa.array([1, 3], new.type)), schema_mode="overwrite"
    )
    (changes,) = follower.look()
    assert isinstance(changes[0], AlterColumn)
    assert (changes[0].column.data_type, changes[0].column.optional) == told
    assert kinds(changes) == ["AlterColumn", "Delete", "Insert"], "a row that only got wider is no change"
    assert follower.rows("people") == lake.rows()


def test_a_column_that_is_dropped_goes_without_its_rows(tmp_path: Path) -> None:
    rows = people((1, "Ada"), (2, "Bob"))
    lake = Lake(tmp_path / "people", rows.append_column("n", pa.array([1, 2])))
    follower = Follower(settings(lake))
    lake.overwrite(rows, schema_mode="overwrite")
    (changes,) = follower.look()
    assert kinds(changes)[0] == "DropColumn"
    assert list(follower.tables["people"].columns) == ["id", "name"]
    assert follower.rows("people") == lake.rows()


def test_versions_of_several_tables_interleave_by_commit_time(tmp_path: Path) -> None:
    first, second = (Lake(tmp_path / name, people((1, "a"))) for name in ("first", "second"))
    follower = Follower(settings(first, second))
    for number, lake in enumerate((second, first, first, second), start=2):
        lake.append(people((number, "b")))
    order = [(change.table, change.row["id"]) for (change,) in follower.look() if isinstance(change, Insert)]
    assert order == [("second", 2), ("first", 3), ("first", 4), ("second", 5)]


def test_a_group_moves_as_one_transaction(tmp_path: Path) -> None:
    first, second = (Lake(tmp_path / name, people((1, "a"))) for name in ("first", "second"))
    follower = Follower(settings(first, second, group="both"))
    first.append(people((2, "b")))
    second.append(people((3, "c")))
    first.delete("id = 1")
    (changes,) = follower.look()
    assert [type(change).__name__ for change in changes] == ["Insert", "Insert", "Delete"]
    assert (follower.rows("first"), follower.rows("second")) == (first.rows(), second.rows())


def test_a_missing_table_lets_the_others_go_on(tmp_path: Path) -> None:
    first, second = (Lake(tmp_path / name, people((1, "a"))) for name in ("first", "second"))
    follower = Follower(settings(first, second))
    first.drop()
    second.append(people((2, "b")))
    assert [kinds(changes) for changes in follower.look()] == [["Insert"]]


def test_concurrent_writers_are_followed_in_the_order_of_their_commits(lake: Lake) -> None:
    from concurrent.futures import ThreadPoolExecutor

    follower = Follower(settings(lake))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: lake.append(people((number, str(number)))), range(10, 22)))
    assert len(follower.look()) == 12
    assert follower.rows("people") == lake.rows()


def test_the_feed_of_a_table_with_deletion_vectors_is_followed(lake: Lake) -> None:
    lake.ask_for("deletionVectors")
    follower = Follower(settings(lake))
    lake.merge(people((2, "Bea"), (4, "Dan")))
    lake.delete("id = 1")
    assert [kinds(changes) for changes in follower.look()] == [["Insert", "Update"], ["Delete"]]
    assert follower.rows("people") == lake.rows()
