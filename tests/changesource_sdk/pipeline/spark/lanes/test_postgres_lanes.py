"""The Spark lanes over a log in Postgres: the task appends to it, and whoever reads it is elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from changesource_sdk.pipeline.source import SourceSpec
from tests.changesource_sdk.changelog.logs_under_test import postgres_store
from tests.changesource_sdk.pipeline.spark.lanes.test_lanes import STORES, commit, ids
from tests.changesource_sdk.pipeline.spark.spark_runner import on_spark
from tests.support.peers.postgres_server import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'changesource'"


def test_a_resident_task_appends_exactly_once_though_its_sessions_are_cut(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    store = postgres_store(postgres.url(), tmp_path / "state")
    settings = {"folder": str(tmp_path)}
    try:
        with on_spark(spark, SourceSpec(f"{STORES}:NumbersAdapter", settings), store) as seen:
            seen.until_generation(1)

            def has_logged(count: int) -> bool:
                return seen.log.state().transactions == count

            for number in range(1, 4):
                commit(tmp_path, *range(number * 1000, number * 1000 + 20))
                with psycopg.connect(postgres.url(), autocommit=True) as connection:
                    connection.execute(CUT)
                seen.until(partial(has_logged, 20 * number))
            found = ids(seen.log_payloads())
    finally:
        store.close()
    assert found == {number * 1000 + offset: 1 for number in range(1, 4) for offset in range(20)}
