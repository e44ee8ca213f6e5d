"""Two sources on one Spark session, each in the lane it needs: one by a resident task, one through Spark SQL."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.sources.runner import SourcesRunner
from changesource_sdk.pipeline.spark.runner import SparkLanes
from service_kit.backoff import Backoff
from tests.changesource_sdk.pipeline.runner_fixtures import watched
from tests.changesource_sdk.pipeline.sources.source_fixtures import stage, until_rows
from tests.changesource_sdk.pipeline.spark.spark_runner import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOUD: dict[str, object] = {"note": {"columns": {"loud": {"sql": "upper(body)", "type": "text"}}}}


def insert(path: Path, table: str, number: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY, body TEXT)")
        connection.execute(f"INSERT INTO {table} VALUES (?, 'text')", (number,))


def test_sources_are_followed_in_their_own_lanes_at_once(spark: SparkSession, tmp_path: Path) -> None:
    files = {"user": tmp_path / "crm.db", "note": tmp_path / "notes.db"}
    for table, path in files.items():
        insert(path, table, 1)
    adapter = "adapters.sqlite:SqliteAdapter"
    crm = SourceSpec(adapter, {"path": str(files["user"])}, name="crm")
    notes = SourceSpec(adapter, {"path": str(files["note"])}, mapping=LOUD, name="notes")
    store = SqliteLogStore(tmp_path / "state")
    lanes = SparkLanes(spark, store, None)
    runner = SourcesRunner([crm, notes], store, lanes, LocalLane(), backoff=lambda: Backoff(0.05, 0.2))
    with watched(runner, store, PATIENCE_S) as seen:
        until_rows(seen, {"user": {1}, "note": {1}})
        for table, path in files.items():
            insert(path, table, 2)
        until_rows(seen, {"user": {1, 2}, "note": {1, 2}})
        assert stage(seen, "notes")["lane"] == "micro-batch"
        assert stage(seen, "crm")["pid"] != stage(seen, "notes")["pid"], "a resident task is a process of its own"
        assert b'"loud":"TEXT"' in b"".join(seen.log_payloads())
        assert seen.log.state().generation == 1
