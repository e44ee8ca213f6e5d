"""Who reads a Delta table where the Spark session has no Delta of its own; where it has, see `tests/delta_spark`."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.spark_tables import SparkTablesAdapter
from adapters.spark_tables.delta.choice import ChosenAccess, open_access
from adapters.spark_tables.delta.jar_free import JarFreeAccess
from adapters.spark_tables.delta.spark import SparkAccess
from adapters.spark_tables.settings import read_tables
from changesource_sdk.errors import AdapterError, ConfigurationError
from tests.adapters.spark_tables.delta.test_feed import kinds, settings
from tests.adapters.spark_tables.follower import Follower
from tests.support.workloads.delta_lake import Lake, people


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "people", people((1, "Ada"), (2, "Bob")))


@pytest.mark.parametrize(
    ("asked", "kind"), [("auto", ChosenAccess), ("deltalake", JarFreeAccess), ("spark", SparkAccess)]
)
def test_the_setting_says_who_reads(asked: str, kind: type) -> None:
    (table,) = read_tables({"people": {"delta": "/lake/people", "key": "id", "delta_reader": asked}}, {})
    assert type(open_access(table)) is kind


@pytest.mark.parametrize("asked", ["auto", "deltalake"])
def test_without_spark_deltalake_reads(lake: Lake, asked: str) -> None:
    follower = Follower(settings(lake, delta_reader=asked))
    lake.update("id = 2", name="'Bea'")
    assert [kinds(changes) for changes in follower.look()] == [["Update"]]
    assert follower.rows("people") == lake.rows()


@pytest.mark.parametrize("asked", ["auto", "deltalake"])
def test_a_feature_that_only_spark_may_know_is_told_with_the_way_to_it(lake: Lake, asked: str) -> None:
    lake.ask_for("typeWidening")
    with pytest.raises(AdapterError) as raised:
        Follower(settings(lake, delta_reader=asked))
    assert raised.value.code == "unsupported-feature"
    assert "tables.people.delta_reader = 'spark'" in raised.value.fix


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_session_without_delta_is_refused_with_what_it_lacks(lake: Lake) -> None:
    with pytest.raises(ConfigurationError) as raised:
        SparkTablesAdapter(**settings(lake, delta_reader="spark")).tables()
    assert raised.value.code == "delta-missing"
    assert raised.value.where == "tables.people.delta_reader"
    for said in ("io.delta:delta-spark_4.2_2.13", "spark.sql.extensions", "pyspark 4.2.0", "'deltalake'"):
        assert said in raised.value.fix
