"""Compaction as Spark jobs on a real session: the same result as in one process, also when tasks die."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.adapter import Delete, Insert, Position, RowsPartition, Snapshot, Transaction, Update
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.pipeline.recovery import Stopped
from changesource_sdk.pipeline.spark.lanes.compaction import SparkLane
from changesource_sdk.schema import Column, Table
from tests.changesource_sdk.pipeline.changing_world import World, WorldAdapter
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog
from tests.changesource_sdk.pipeline.spark.stores import DeadlyLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2000


class Numbers:
    """Two thousand rows, of which transactions delete, change and move some."""

    def tables(self) -> Sequence[Table]:
        return [Table("row", [Column("id", int), Column("v", str)])]

    def snapshot(self) -> Snapshot:
        rows = [{"id": number, "v": "old"} for number in range(ROWS)]
        return Snapshot(0, [RowsPartition("row", rows[start : start + 500]) for start in range(0, ROWS, 500)])

    def changes(self, after: Position) -> Iterator[Transaction]:
        for number in range(1, 101):
            key = number * 3
            moved = Update("row", {"id": key + ROWS}, {"id": key})
            changed = Update("row", {"id": key + 1, "v": "new"})
            yield Transaction(number, [moved, changed, Delete("row", {"id": key + 2}), Insert("row", {"id": -number})])


def expected() -> list[dict[str, object]]:
    rows: dict[int, str | None] = dict.fromkeys(range(ROWS), "old")
    for number in range(1, 101):
        key = number * 3
        rows[key + ROWS] = rows.pop(key)
        rows[key + 1] = "new"
        del rows[key + 2]
        rows[-number] = None
    return sorted(({"id": key, "v": value} for key, value in rows.items()), key=lambda row: repr(sorted(row.items())))


def lane(spark: SparkSession) -> SparkLane:
    return SparkLane(spark.sparkContext, threading.Event())


def test_rows_come_out_once_each_from_many_buckets(spark: SparkSession, tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, Numbers())
    log.follow()
    log.compact(lane(spark), range_bytes=5000, bucket_bytes=40_000)
    assert log.replica_from(log.newest()).contents()["row"] == expected()
    manifest = snapshots.read_manifest(log.newest().directory)
    assert len(manifest.parts) > 4
    assert manifest.rows == len(expected())
    files = {path.name for path in log.newest().directory.iterdir()}
    assert files == {part.file for part in manifest.parts} | {"manifest.json"}
    log.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_random_histories_fold_as_in_one_process(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    world = World(Random(seed), retypes=True)
    world.live(transactions=20, changes=15)
    log = CompactedLog(tmp_path, WorldAdapter(world), spill_bytes=3000)
    old = log.newest()
    log.follow()
    before = log.replica_from(old)
    log.compact(lane(spark), range_bytes=4000, bucket_bytes=8000)
    after = log.replica_from(log.newest())
    assert after.contents() == before.contents()
    assert after.indexes() == before.indexes()
    log.close()


def test_a_task_that_is_killed_runs_again_and_leaves_no_double(spark: SparkSession, tmp_path: Path) -> None:
    log = CompactedLog(tmp_path / "state", Numbers())
    log.follow()
    mark = tmp_path / "killed"
    deadly = DeadlyLog(tmp_path / "state", mark=mark, test_process=os.getpid())
    log.compact(lane(spark), range_bytes=5000, bucket_bytes=40_000, store=deadly)
    assert mark.exists()
    assert log.replica_from(log.newest()).contents()["row"] == expected()
    log.close()


def test_a_stop_ends_the_jobs(spark: SparkSession, tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, Numbers())
    log.follow()
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        log.compact(SparkLane(spark.sparkContext, stop))
    assert len(log.reader.snapshots()) == 1
    log.close()
