"""The Spark lanes on a real session: snapshot parts by tasks, a tail that never ends, and what a kill leaves behind."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.source import SourceSpec
from tests.changesource_sdk.pipeline.runner_fixtures import Watched
from tests.changesource_sdk.pipeline.spark.spark_runner import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORES = "tests.changesource_sdk.pipeline.spark.stores"


def running(session: SparkSession, adapter: str, folder: Path) -> AbstractContextManager[Watched]:
    """A Spark runner over a store of this folder."""
    return on_spark(session, SourceSpec(f"{STORES}:{adapter}", {"folder": str(folder)}), folder / "state")


def ids(payloads: list[bytes]) -> Counter[int]:
    """The ids inserted, each with how often."""
    changes = [json.loads(payload)[1] for payload in payloads]
    return Counter(change["new"]["id"] for change in changes if change.get("tag") == "insert")


def commit(folder: Path, *lines: object) -> None:
    """Transactions of the store, one per line."""
    with (folder / "transactions").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_partitions_become_parts_and_transactions_the_log(spark: SparkSession, tmp_path: Path) -> None:
    with running(spark, "NumbersAdapter", tmp_path) as seen:
        seen.until_generation(1)
        assert ids(seen.snapshot_payloads()) == Counter(range(4000))
        commit(tmp_path, 5000, 5001)
        seen.until_position(2)
        assert ids(seen.log_payloads()) == Counter([5000, 5001])
        (record,) = seen.log.snapshots()
        manifest = snapshots.read_manifest(record.directory)
        assert [part.rows for part in manifest.parts] == [0, 1000, 1000, 1000, 1000]
        assert seen.stage()["rows"] == 4000
    assert seen.stage()["state"] == "stopped"


@pytest.mark.parametrize("order", ["kill-1000", "raise-2000"])
def test_a_task_that_dies_or_fails_is_run_again_and_leaves_one_part(
    spark: SparkSession, tmp_path: Path, order: str
) -> None:
    (tmp_path / order).touch()
    with running(spark, "NumbersAdapter", tmp_path) as seen:
        seen.until_generation(1)
        assert ids(seen.snapshot_payloads()) == Counter(range(4000))
        (record,) = seen.log.snapshots()
        assert not list(record.directory.glob("attempt-*"))
    assert not (tmp_path / order).exists()


def test_a_resident_task_that_dies_goes_on_where_the_log_ends(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "kill").touch()
    commit(tmp_path, 5000, "kill", 5002)
    with running(spark, "NumbersAdapter", tmp_path) as seen:
        seen.until_position(3)
        assert ids(seen.log_payloads()) == Counter([5000, 10_002, 5002])
        assert seen.log.state().epoch >= 3
    assert not (tmp_path / "kill").exists()


def test_a_snapshot_asked_for_while_tailing_is_taken_by_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    with running(spark, "NumbersAdapter", tmp_path) as seen:
        seen.until(lambda: seen.stage().get("state") == "tailing", "tailing")
        SqliteLogStore(seen.state).requests.ask_snapshot(seen.log.state().head, "a consumer saw more")
        seen.until_generation(2)
        commit(tmp_path, 5000)
        seen.until_position(1)


def test_a_partition_that_cannot_be_sent_is_named_with_the_fix(spark: SparkSession, tmp_path: Path) -> None:
    with running(spark, "Unpicklable", tmp_path) as seen:
        seen.until(lambda: seen.error_code() == "partition-not-picklable", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert "Locked" in error["message"]
        assert "open files and connections in rows()" in error["fix"]


def test_rows_that_do_not_fit_are_told_once_without_spark_s_retries(spark: SparkSession, tmp_path: Path) -> None:
    with running(spark, "WrongType", tmp_path) as seen:
        seen.until(lambda: seen.error_code() == "value-does-not-fit", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert "column id" in error["where"]


def test_rows_that_do_not_fit_are_left_out_by_tasks_and_by_the_tail(spark: SparkSession, tmp_path: Path) -> None:
    source = SourceSpec(f"{STORES}:SomeWrongRows", {"folder": str(tmp_path)}, on_bad_value="dead-letter")
    with on_spark(spark, source, tmp_path / "state") as seen:
        seen.until_generation(1)
        assert ids(seen.snapshot_payloads()) == Counter([1, 3])
        assert {letter.row for letter in seen.log.kept_aside().letters} == {"id='two'", "id='four'"}
        commit(tmp_path, 5000)
        seen.until_position(1)
        assert ids(seen.log_payloads()) == Counter([5000])
        assert len(seen.log.kept_aside().letters) == 2


def test_an_adapter_that_blocks_forever_does_not_hold_up_the_stop(spark: SparkSession, tmp_path: Path) -> None:
    with running(spark, "Blocking", tmp_path) as seen:
        seen.until(lambda: (tmp_path / "blocked").exists(), "the adapter to block")
    assert seen.stage()["state"] == "stopped"


def test_a_snapshot_that_was_stopped_goes_on_with_the_parts_it_has(spark: SparkSession, tmp_path: Path) -> None:
    with running(spark, "Resumable", tmp_path) as seen:
        seen.until(lambda: len(list((seen.state / "spool").glob("*/part-*.json"))) == 2, "two finished parts")
        seen.until(lambda: (tmp_path / "read-2000").exists(), "a part in the middle")
    assert seen.log.state().generation == 0
    (unfinished,) = (seen.state / "spool").iterdir()
    (unfinished / "part-00003.frames").write_bytes(b"of a task that was killed before its note")
    (tmp_path / "go").touch()
    with running(spark, "Resumable", tmp_path) as seen:
        seen.until_generation(1)
        assert ids(seen.snapshot_payloads()) == Counter(range(4000))
        seen.until(lambda: seen.stage()["done"] == 4, "the report of all parts")
    assert (tmp_path / "snapshots").read_text() == "taken\n"
    reads = [len((tmp_path / f"read-{first}").read_text().splitlines()) for first in range(0, 4000, 1000)]
    assert reads[:2] == [1, 1]
    assert not (tmp_path / "copy").exists()


def test_a_snapshot_that_goes_on_keeps_the_letters_of_the_parts_it_has(spark: SparkSession, tmp_path: Path) -> None:
    source = SourceSpec(f"{STORES}:ResumableWithBadRows", {"folder": str(tmp_path)}, on_bad_value="dead-letter")
    with on_spark(spark, source, tmp_path / "state") as seen:
        seen.until(lambda: len(list((seen.state / "spool").glob("*/part-*.json"))) == 2, "two finished parts")
    assert seen.log.state().generation == 0
    (tmp_path / "go").touch()
    with on_spark(spark, source, tmp_path / "state") as seen:
        seen.until_generation(1)
        assert ids(seen.snapshot_payloads()) == Counter(range(4000))
        assert {letter.row for letter in seen.log.kept_aside().letters} == {
            f"id='bad {first}'" for first in range(0, 4000, 1000)
        }
    assert [len((tmp_path / f"read-{first}").read_text().splitlines()) for first in (0, 1000)] == [1, 1]


def test_a_store_that_fails_is_reported_and_followed_again_when_it_is_back(spark: SparkSession, tmp_path: Path) -> None:
    commit(tmp_path, 5000)
    with running(spark, "Raising", tmp_path) as seen:
        seen.until(lambda: seen.error_code() == "adapter-failed", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert "the store hung up" in error["message"]
        assert "stores.py line" in error["where"]
        (tmp_path / "mended").touch()
        seen.until_position(1)
        seen.until(lambda: seen.error_code() is None, "the end of the error")


def test_a_store_that_goes_backwards_is_stopped_before_the_log(spark: SparkSession, tmp_path: Path) -> None:
    with running(spark, "Backwards", tmp_path) as seen:
        seen.until(lambda: seen.error_code() == "watermark-not-increasing", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert "a10000000002" in error["message"]
        assert 5003 not in ids(seen.log_payloads())


def test_a_full_disk_in_a_task_is_told_and_the_snapshot_taken_when_there_is_room(
    spark: SparkSession, tmp_path: Path
) -> None:
    with running(spark, "FullDisk", tmp_path) as seen:
        seen.until(lambda: seen.error_code() == "disk-full", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert "free space" in error["fix"]
        (tmp_path / "room").touch()
        seen.until_generation(1)
        assert ids(seen.snapshot_payloads()) == Counter(range(4000))
