"""Pieces written by Spark tasks: the same file as in one process, row by row, and in the same order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.seed import build
from changesource_sdk.seed.lanes import SparkSeedLane
from tests.changesource_sdk.pipeline.changing_world import World, WorldAdapter
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog
from tests.changesource_sdk.seed.seeded_log import query, seed_of, tables_of
from tests.changesource_sdk.seed.test_build import Unsorted, WithoutSchemaChanges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from changesource_sdk.adapter import Adapter


def changed_world(kind: type[World]) -> WorldAdapter:
    world = kind(Random(7), retypes=False)
    world.live(transactions=10, changes=6)
    return WorldAdapter(world)


@pytest.mark.parametrize("case", ["unsorted", "row changes", "schema changes"])
def test_spark_and_one_process_write_the_same_rows(
    spark: SparkSession, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PIECE_BYTES", 1)
    kinds = {"row changes": WithoutSchemaChanges, "schema changes": World}
    adapter: Adapter = changed_world(kinds[case]) if case in kinds else Unsorted()
    with closing(CompactedLog(tmp_path / "state", adapter)) as log:
        log.follow()
        seed_of(log.store, tmp_path / "inline.db")
        seed_of(log.store, tmp_path / "spark.db", lane=SparkSeedLane(spark.sparkContext))
    inline, on_spark = tmp_path / "inline.db", tmp_path / "spark.db"
    assert query(inline, "SELECT name, sql FROM sqlite_schema") == query(
        on_spark, "SELECT name, sql FROM sqlite_schema"
    )
    for name in tables_of(inline):
        columns = [column for (column,) in query(inline, "SELECT name FROM pragma_table_info(?)", (name,))]
        shown = ", ".join(f'"{column}"' for column in columns if column != "_0_version")
        # Folding puts rows of tables without key into parts in no fixed order.
        order = "rowid" if case == "unsorted" else shown
        sql = f'SELECT {shown} FROM "{name}" ORDER BY {order}'
        assert query(inline, sql) == query(on_spark, sql)
