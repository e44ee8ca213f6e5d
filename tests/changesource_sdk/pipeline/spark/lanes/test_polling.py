"""The polling lane: an adapter whose changes are Spark jobs is followed in the driver."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.lanes.polling import LANE, is_needed
from tests.changesource_sdk.pipeline.spark.lanes.test_lanes import STORES, commit, ids, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_adapter_says_that_it_needs_the_lane(tmp_path: Path) -> None:
    settings = {"folder": str(tmp_path)}
    assert is_needed(SourceSpec(f"{STORES}:DriverAdapter", settings))
    assert not is_needed(SourceSpec(f"{STORES}:NumbersAdapter", settings))
    assert is_needed(SourceSpec(f"{STORES}:DriverAdapter", settings, mapping={"item": {"name": "thing"}}))


def test_changes_run_jobs_of_the_session_and_go_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    commit(tmp_path, 1)
    with running(spark, "DriverAdapter", tmp_path) as seen:
        seen.until_position(1)
        assert ids(seen.log_payloads()) == Counter([7])
        seen.until(lambda: seen.stage().get("lane") == LANE, "the lane")
    commit(tmp_path, 2)
    with running(spark, "DriverAdapter", tmp_path) as seen:
        seen.until_position(2)
        assert ids(seen.log_payloads()) == Counter({7: 2})
