"""Spark finds exactly what changed: against the remembered hashes, over many versions, with any column names."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adapters.spark_tables.difference.changed_rows import changes_of, partitions_of
from adapters.spark_tables.difference.compute import TableDifference, tuned
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from adapters.spark_tables.rows.shape import Shape
from changesource_sdk.adapter import Delete, Insert, Row, Update
from changesource_sdk.errors import AdapterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = dict[int, tuple[str | None, float | None]]


@pytest.fixture(scope="module")
def own(spark: SparkSession) -> SparkSession:
    return tuned(spark)


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    return StateFolder(str(tmp_path / "state"))


@pytest.fixture
def difference(own: SparkSession, folder: StateFolder) -> TableDifference:
    return TableDifference(own, folder, "items", ["id"])


def frame(session: SparkSession, rows: Rows) -> DataFrame:
    listed = [(key, *values) for key, values in rows.items()]
    return session.createDataFrame(listed, "id bigint, `a name` string, `x.y` double")


def applied(folder: StateFolder, version: StateVersion, shape: Shape, rows: dict[int, Row]) -> dict[int, Row]:
    """What a consumer holds after a version; every change must fit what it held before."""
    rows = dict(rows)
    for change in changes_of(folder, version, shape):
        match change:
            case Insert(_, row):
                assert row["id"] not in rows
                rows[int(str(row["id"]))] = row
            case Update(_, row):
                assert rows[int(str(row["id"]))] != row
                rows[int(str(row["id"]))] = row
            case Delete(_, key):
                del rows[int(str(key["id"]))]
            case _:
                raise AssertionError(change)
    return rows


def held(rows: Rows) -> dict[int, Row]:
    return {key: {"id": key, "a name": name, "x.y": number} for key, (name, number) in rows.items()}


def changed(rows: Rows, rng: random.Random) -> Rows:
    rows = dict(rows)
    for key in rng.sample(sorted(rows), k=min(len(rows), 4)):
        match rng.randrange(3):
            case 0:
                del rows[key]
            case 1:
                rows[key] = (rng.choice([None, "ü", ""]), rng.choice([None, 0.5]))
            case _:
                rows[rng.randrange(1000)] = ("new", rng.random())
    return rows


def test_a_seeded_series_of_differences_leads_to_each_state(
    own: SparkSession, folder: StateFolder, difference: TableDifference
) -> None:
    rng = random.Random(9)
    rows: Rows = {key: (f"row {key}", key / 4) for key in range(40)}
    now = frame(own, rows)
    shape = Shape("items", now.schema, ("id",))
    version = difference.begin(now, None)
    consumer = {int(str(row["id"])): row for share in partitions_of(folder, version, shape) for row in share.rows()}
    assert consumer == held(rows)
    for step in range(6):
        rows = changed(rows, rng)
        found = difference.find(version, frame(own, rows), None)
        if found is not None:
            version = found.version
            consumer = applied(folder, version, shape, consumer)
        assert consumer == held(rows), f"step {step}"
        assert version.rows == len(rows)
        if step == 3:
            version = difference.compact(version)
            assert version.deltas == ()


def test_the_same_rows_are_no_difference(own: SparkSession, difference: TableDifference) -> None:
    rows: Rows = {1: ("a", 1.0), 2: (None, None)}
    version = difference.remember(frame(own, rows), "first")
    assert difference.find(version, frame(own, dict(reversed(rows.items()))), "second") is None
    assert difference.find(version, frame(own, rows), "third", digests=True) is None


def test_a_value_that_moves_to_another_column_is_a_change(own: SparkSession, difference: TableDifference) -> None:
    schema = "id bigint, a string, b string"
    version = difference.remember(own.createDataFrame([(1, "x", None)], schema), None)
    found = difference.find(version, own.createDataFrame([(1, None, "x")], schema), None)
    assert found is not None
    assert (found.inserts, found.updates, found.deletes) == (0, 1, 0)


def test_new_null_columns_wider_numbers_and_another_order_are_no_change(
    own: SparkSession, difference: TableDifference
) -> None:
    before = own.createDataFrame([(1, 7, 1.5, "x")], "id int, n int, f float, t string")
    after = own.createDataFrame([("x", None, 1.5, 7, 1)], "t string, added array<int>, f double, n bigint, id bigint")
    version = difference.remember(before, None)
    assert difference.find(version, after, None) is None
    assert difference.find(difference.renumbered(version.number), after, None, digests=True) is None


def test_maps_and_nested_values_are_compared(own: SparkSession, difference: TableDifference) -> None:
    schema = "id bigint, m map<string, int>, s struct<a: array<int>>"
    version = difference.remember(own.createDataFrame([(1, {"a": 1}, ([1],)), (2, {}, ([],))], schema), None)
    found = difference.find(version, own.createDataFrame([(1, {"a": 2}, ([1],)), (2, {}, ([3],))], schema), None)
    assert found is not None
    assert found.updates == 2


def test_a_table_may_become_empty_and_fill_again(own: SparkSession, difference: TableDifference) -> None:
    rows: Rows = {1: ("a", 1.0), 2: ("b", 2.0)}
    version = difference.begin(frame(own, rows), None)
    emptied = difference.find(version, frame(own, {}), None)
    assert emptied is not None
    assert (emptied.deletes, emptied.version.rows) == (2, 0)
    filled = difference.find(emptied.version, frame(own, rows), None)
    assert filled is not None
    assert (filled.inserts, filled.version.rows) == (2, 2)


def test_a_collision_of_hashes_is_found_by_the_full_compare(
    own: SparkSession, folder: StateFolder, difference: TableDifference, tmp_path: Path
) -> None:
    version = difference.remember(frame(own, {1: ("old", 1.0), 2: ("b", 2.0)}), None)
    now = frame(own, {1: ("new", 1.0), 2: ("b", 2.0)})
    collide(folder, version, difference.remember(now, None))
    assert difference.find(version, now, None) is None
    found = difference.find(version, now, None, digests=True)
    assert found is not None
    shape = Shape("items", now.schema, ("id",))
    assert list(changes_of(folder, found.version, shape)) == [Update("items", {"id": 1, "a name": "new", "x.y": 1.0})]


def collide(folder: StateFolder, version: StateVersion, other: StateVersion) -> None:
    """Give the rows of a version the hashes of another, as if different rows hashed to the same."""
    hashes = {row["k0"]: row["hash"] for row in whole(folder, other.base).to_pylist()}
    table = whole(folder, version.base)
    forged = pa.array([hashes[key] for key in table["k0"].to_pylist()], pa.int64())
    table = table.set_column(table.schema.get_field_index("hash"), "hash", forged)
    files = folder.parquet_files(version.base)
    for path in files[1:]:
        Path(path).unlink()
        Path(path).with_name(f".{Path(path).name}.crc").unlink(missing_ok=True)
    pq.write_table(table, files[0])
    Path(files[0]).with_name(f".{Path(files[0]).name}.crc").unlink(missing_ok=True)


def whole(folder: StateFolder, name: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in folder.parquet_files(name)])


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        ([(1, "a"), (1, "a"), (2, "b")], "duplicate-keys", "1 key is used more than once (id), such as 1 (2 times)"),
        ([(1, "a"), (1, "z"), (2, "b")], "duplicate-keys", "1 (2 times)"),
        ([(1, "a"), (2, "b"), (5, "n"), (5, "n"), (5, "m")], "duplicate-keys", "5 (3 times)"),
        ([(1, "a"), (None, "b")], "null-keys", "1 row has a null in the key (id), such as {id: None, t: 'b'}"),
    ],
)
def test_keys_that_stop_being_keys_are_named(
    own: SparkSession, difference: TableDifference, rows: Sequence[tuple[int | None, str]], code: str, said: str
) -> None:
    schema = "id bigint, t string"
    version = difference.remember(own.createDataFrame([(1, "a"), (2, "b")], schema), None)
    with pytest.raises(AdapterError) as error:
        difference.find(version, own.createDataFrame(rows, schema), None)
    assert error.value.code == code
    assert said in error.value.message
    assert error.value.where == "table items"


def test_a_first_look_refuses_repeated_and_null_keys_of_several_columns(own: SparkSession, folder: StateFolder) -> None:
    two = TableDifference(own, folder, "pairs", ["a", "b"])
    rows = [(1, "x"), (1, "x"), (2, "y"), (None, "y"), (1, None)]
    with pytest.raises(AdapterError) as error:
        two.begin(own.createDataFrame(rows, "a int, b string"), None)
    nulls, repeated = error.value.message.split("; ")
    assert nulls in {
        f"2 rows have a null in the key (a, b), such as {row}" for row in ("{a: None, b: 'y'}", "{a: 1, b: None}")
    }
    assert repeated == "1 key is used more than once (a, b), such as (1, 'x') (2 times)"
