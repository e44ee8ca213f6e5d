"""Every lane of Spark gives an adapter its tables of the position, also for changes that were made while it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.pipeline.source import SourceSpec
from tests.changesource_sdk.pipeline.positional_log import PositionalLog
from tests.changesource_sdk.pipeline.spark.spark_runner import on_spark
from tests.changesource_sdk.pipeline.test_late_schema import MAPPED, change_the_schema, expected, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "tests.changesource_sdk.pipeline.positional_log"
LOUD = {"note": {"name": "memo", "columns": {"loud": {"sql": "upper(title)", "type": "text"}}}}


def test_the_resident_lane(spark: SparkSession, tmp_path: Path) -> None:
    upstream = PositionalLog(tmp_path / "entries")
    upstream.commit(["put", [1, "one", "s1"]])
    source = SourceSpec(f"{MODULE}:PositionalAdapter", {"path": str(upstream.path)}, mapping=MAPPED)
    with on_spark(spark, source, tmp_path / "state") as seen:
        seen.until_generation(1)
    change_the_schema(upstream)
    with on_spark(spark, source, tmp_path / "state") as seen:
        seen.until_position(5)
        assert states(seen, "memo") == expected("heading")


@pytest.mark.parametrize(("adapter", "lane"), [("PositionalAdapter", "micro-batch"), ("DriverAdapter", "polling")])
def test_the_lanes_of_mappings_in_sql(spark: SparkSession, tmp_path: Path, adapter: str, lane: str) -> None:
    upstream = PositionalLog(tmp_path / "entries")
    upstream.commit(["put", [1, "one", "s1"]])
    source = SourceSpec(f"{MODULE}:{adapter}", {"path": str(upstream.path)}, mapping=LOUD)
    with on_spark(spark, source, tmp_path / "state") as seen:
        seen.until_generation(1)
    upstream.commit(["add", "w1"], ["put", [2, "two", "s2", "w"]])
    with on_spark(spark, source, tmp_path / "state") as seen:
        seen.until_position(2)
        assert seen.stage()["lane"] == lane
        two = {"id": 2, "title": "two", "secret": "s2", "loud": "TWO", "w1": "w"}
        assert states(seen, "memo")[-1][2] == two
        # SQL was analysed for the columns before: with others the upstream is read again.
        upstream.commit(["drop", "secret"])
        seen.until_generation(2)
        upstream.commit(["put", [3, "three", "x"]])
        seen.until_position(4)
        assert states(seen, "memo")[-1][3] == {"id": 3, "title": "three", "loud": "THREE", "w1": "x"}
