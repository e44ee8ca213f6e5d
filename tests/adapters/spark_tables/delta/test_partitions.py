"""Shares of a Delta table: together they are its rows, each once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import WriterProperties

from adapters.spark_tables import SparkTablesAdapter
from adapters.spark_tables.delta import partitions as delta_partitions
from tests.adapters.spark_tables.delta.test_feed import settings
from tests.adapters.spark_tables.follower import Follower
from tests.support.workloads.delta_lake import FEED, Lake, people


def test_a_snapshot_is_divided_by_files_and_row_groups_or_by_ranges_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_partitions, "PARTITION_ROWS", 10)
    lake = Lake(tmp_path / "people", people())
    rows = people(*((n * 7, str(n)) for n in range(-20, 20)))
    lake.append(rows, writer_properties=WriterProperties(max_row_group_size=10))
    for _ in range(3):
        lake.append(people((lake.table.version() + 1000, None)))
    adapter = SparkTablesAdapter(**settings(lake))
    assert len(adapter.snapshot().partitions) == 5
    assert Follower(settings(lake)).rows("people") == lake.rows()
    lake.ask_for("deletionVectors")
    assert len(adapter.snapshot().partitions) == 4
    assert Follower(settings(lake)).rows("people") == lake.rows()


def test_columns_that_are_only_in_the_path_are_read(tmp_path: Path) -> None:
    rows = people((1, "a"), (2, "b"), (3, None))
    lake = Lake(tmp_path / "people", rows, FEED, partition_by=["name"])
    follower = Follower(settings(lake))
    assert follower.rows("people") == lake.rows()
    lake.append(people((4, "b")))
    lake.update("id = 1", name="'b'")
    follower.look()
    assert follower.rows("people") == lake.rows()


def test_an_empty_table_has_rows_once_it_gets_some(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "people", people())
    follower = Follower(settings(lake))
    assert follower.rows("people") == []
    lake.append(people((1, "a")))
    follower.look()
    assert follower.rows("people") == lake.rows()


def test_files_of_before_a_column_was_added_have_nulls_in_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "people", people((1, "a")))
    lake.append(people((2, "b")).append_column("age", pa.array([30], pa.int32())), schema_mode="merge")
    assert Follower(settings(lake)).rows("people") == lake.rows()
