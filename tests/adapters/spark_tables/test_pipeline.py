"""Delta tables through the Spark runner: parts by tasks, the tail in the driver, SQL mappings on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.testing.folding import FoldedTables
from protocol.codec import decode_downstream
from protocol.messages import Data
from tests.adapters.spark_tables.delta.test_feed import settings
from tests.changesource_sdk.pipeline.runner_fixtures import Watched
from tests.changesource_sdk.pipeline.spark.spark_runner import on_spark
from tests.support.workloads.delta_lake import Lake, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADAPTER = "adapters.spark_tables:SparkTablesAdapter"
Rows = dict[object, dict[str, object]]


def replica(seen: Watched) -> dict[str, Rows]:
    """What a consumer of the log holds, by table and id."""
    folded = FoldedTables()
    for payload in (*seen.snapshot_payloads(), *seen.log_payloads()):
        message = decode_downstream(payload)
        if isinstance(message, Data):
            folded.apply([message.change])
    return {name: {key[0]: dict(row) for key, row in rows.items()} for name, rows in folded.tables.items()}


def by_id(lake: Lake) -> Rows:
    return {row["id"]: row for row in lake.rows()}


def test_a_delta_table_is_followed_and_its_gap_bridged_without_a_reset(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "people", people(*((n, str(n)) for n in range(100))))
    source = SourceSpec(ADAPTER, settings(lake, poll=0.05))
    with on_spark(spark, source, tmp_path / "log") as seen:
        seen.until_generation(1)
        assert replica(seen)["people"] == by_id(lake)
        lake.merge(people((1, "one"), (100, "hundred")))
        lake.delete("id = 2")
        seen.until(lambda: replica(seen)["people"] == by_id(lake), "the merge and the delete")
        assert seen.stage()["lane"] == "polling"
    lake.append(people((101, "x")))
    lake.update("id = 3", name="'three'")
    lake.clean_log(before=lake.table.version())
    with on_spark(spark, source, tmp_path / "log") as seen:
        seen.until(lambda: replica(seen)["people"] == by_id(lake), "the rows after the gap")
        assert seen.log.state().generation == 1


def test_sql_mappings_see_the_rows_before_and_after(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "people", people((1, "Ada"), (2, "Bob"), (3, "Cy")))
    mapping = {"people": {"filter": {"sql": "name <> 'Bob'"}, "columns": {"name": {"sql": "upper(name)"}}}}
    source = SourceSpec(ADAPTER, settings(lake, poll=0.05), mapping=mapping)
    with on_spark(spark, source, tmp_path / "log") as seen:
        seen.until_generation(1)
        assert {key: row["name"] for key, row in replica(seen)["people"].items()} == {1: "ADA", 3: "CY"}
        lake.merge(people((1, "Bob"), (2, "Bea"), (4, "Dan")))
        expected = {2: "BEA", 3: "CY", 4: "DAN"}
        seen.until(
            lambda: {key: row["name"] for key, row in replica(seen)["people"].items()} == expected, "the mapped rows"
        )


def test_a_wrong_expression_is_told_in_sparks_words_and_ours(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "people", people((1, "Ada")))
    source = SourceSpec(ADAPTER, settings(lake), mapping={"people": {"filter": {"sql": "nmae <> 'Bob'"}}})
    with on_spark(spark, source, tmp_path / "log") as seen:
        seen.until(lambda: seen.error_code() == "bad-mapping", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert "nmae" in json.dumps(error)
        assert error["where"].startswith("mapping.people.filter")
