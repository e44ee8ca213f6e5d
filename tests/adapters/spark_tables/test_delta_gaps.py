"""A Delta table whose feed has a gap: Spark's difference bridges it, and consumers are not reset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from adapters.spark_tables import SparkTablesAdapter
from changesource_sdk.adapter import AlterColumn
from changesource_sdk.errors import AdapterError
from tests.adapters.spark_tables.delta.test_feed import kinds, settings
from tests.adapters.spark_tables.follower import Follower
from tests.support.workloads.delta_lake import Lake, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "people", people((1, "Ada"), (2, "Bob"), (3, None)))


def _cleaned(lake: Lake) -> None:
    lake.append(people((5, "Eve")))
    lake.update("id = 2", name="'Bo'")
    lake.delete("id = 4")
    lake.clean_log(before=lake.table.version())


def _vacuumed(lake: Lake) -> None:
    lake.overwrite(people((1, "Ada"), (2, "Bo"), (6, "Fay")))
    lake.overwrite(people((1, "Ada"), (2, "Bo"), (6, "Fay"), (7, "Gil")))
    lake.vacuum()


def _switched_off(lake: Lake) -> None:
    lake.table.alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    lake.update("id = 1", name="'A'")
    lake.table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})


def _made_anew(lake: Lake) -> None:
    lake.drop()
    Lake(lake.path, people((1, "Ada"), (3, "Cy"), (8, "Hal")))


@pytest.mark.parametrize("break_feed", [_cleaned, _vacuumed, _switched_off, _made_anew])
def test_a_gap_is_bridged_and_the_feed_goes_on_after_it(lake: Lake, break_feed: Callable[[Lake], None]) -> None:
    follower = Follower(settings(lake), replacing=True)
    lake.append(people((4, "Dan")))
    assert [kinds(changes) for changes in follower.look()] == [["Insert"]]
    break_feed(lake)
    follower.restart()
    follower.look()
    assert follower.rows("people") == lake.rows()
    lake.append(people((9, "Ian")))
    assert [kinds(changes) for changes in follower.look()] == [["Insert"]]
    assert follower.rows("people") == lake.rows()


def test_columns_that_are_mapped_and_renamed_follow_by_the_difference(lake: Lake) -> None:
    follower = Follower(settings(lake))
    lake.mapped_columns(["id", "name"], ["id", "name"])
    assert follower.look() == []
    lake.mapped_columns(["id", "title"], ["id", "name"])
    (changes,) = follower.look()
    assert isinstance(changes[0], AlterColumn)
    assert follower.rows("people") == lake.rows()
    lake.append(pa.table({"id": pa.array([4], pa.int64()), "title": ["Dan"]}))
    assert [kinds(changes) for changes in follower.look()] == [["Insert"]]
    assert follower.rows("people") == lake.rows()


def test_columns_that_an_overwrite_drops_and_retypes_follow_with_all_rows(lake: Lake) -> None:
    follower = Follower(settings(lake))
    lake.overwrite(
        pa.table({"id": pa.array([1, 2], pa.int64()), "name": pa.array([7, 8], pa.int64())}), schema_mode="overwrite"
    )
    (changes,) = follower.look()
    assert isinstance(changes[0], AlterColumn)
    assert follower.tables["people"].columns["name"] == "int8"
    assert follower.rows("people") == lake.rows()
    lake.overwrite(pa.table({"id": pa.array([2], pa.int64())}), schema_mode="overwrite")
    follower.look()
    assert follower.rows("people") == lake.rows() == [{"id": 2}]


def test_keys_written_twice_are_told_until_they_are_mended(lake: Lake) -> None:
    follower = Follower(settings(lake))
    lake.append(people((9, "a"), (9, "b")))
    with pytest.raises(AdapterError) as raised:
        follower.look()
    assert raised.value.code == "duplicate-keys"
    assert "9 (2 times)" in raised.value.message
    lake.delete("id = 9")
    lake.append(people((9, "c")))
    follower.look()
    assert follower.rows("people") == lake.rows()


def test_a_table_without_feed_is_followed_by_differences(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "people", people((1, "Ada"), (2, "Bob")), configuration=None)
    follower = Follower(settings(lake))
    lake.merge(people((2, "Bo"), (3, "Cy")))
    assert [kinds(changes) for changes in follower.look()] == [["Insert", "Update"]]
    lake.table.optimize.compact()
    assert follower.look() == []
    lake.append(people((4, "Dan")).append_column("age", pa.array([3], pa.int32())), schema_mode="merge")
    assert [kinds(changes) for changes in follower.look()] == [["AddColumn", "Insert"]]
    assert follower.rows("people") == lake.rows()


def test_the_doctor_tells_keys_types_and_how_changes_are_found(tmp_path: Path, spark: SparkSession) -> None:
    rows = people((1, "a"), (1, "b"), (2, "c")).append_column("raw", pa.array([b"x", b"y", b"z"]))
    lake = Lake(tmp_path / "people", rows)
    findings = list(SparkTablesAdapter(**settings(lake)).examine())
    assert [check.ok for check in findings] == [True, True, True, False]
    assert "change feed" in findings[1].message
    assert "raw (binary)" in findings[2].message
    assert "1 (2 times)" in findings[3].message


def test_a_snapshot_of_a_table_with_repeated_keys_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "people", people((1, "a"), (1, "b")))
    with pytest.raises(AdapterError) as raised:
        Follower(settings(lake))
    assert raised.value.code == "duplicate-keys"
    assert "1 (2 times)" in raised.value.message


def test_a_name_in_a_catalog_leads_to_its_place(lake: Lake, spark: SparkSession) -> None:
    spark.sql(f"CREATE TABLE people_in_catalog USING parquet LOCATION '{lake.path}'")
    try:
        tables = {"people": {"delta": "people_in_catalog", "key": "id"}}
        follower = Follower({"tables": tables, "state": str(lake.path.parent / "state")})
    finally:
        spark.sql("DROP TABLE people_in_catalog")
    assert follower.rows("people") == lake.rows()


def test_a_name_that_no_catalog_has_is_missing(tmp_path: Path) -> None:
    tables = {"people": {"delta": "nowhere.people", "key": "id"}}
    with pytest.raises(AdapterError) as raised:
        SparkTablesAdapter(tables, str(tmp_path)).tables()
    assert raised.value.code == "table-missing"
