"""Delta tables that cannot be read, or not as they are asked for: what is told, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.spark_tables import SparkTablesAdapter
from adapters.spark_tables.source import TableMissing
from changesource_sdk.errors import AdapterError, ChangesourceError, ConfigurationError
from tests.adapters.spark_tables.delta.test_feed import settings
from tests.adapters.spark_tables.follower import Follower
from tests.support.workloads.delta_lake import Lake, people


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "people", people((1, "Ada"), (2, "Bob")))


def adapter(lake: Lake, **more: object) -> SparkTablesAdapter:
    return SparkTablesAdapter(**settings(lake, **more))


def test_a_table_that_is_not_there_is_told_with_its_place(lake: Lake) -> None:
    lake.drop()
    with pytest.raises(TableMissing) as raised:
        adapter(lake).snapshot()
    assert raised.value.code == "table-missing"
    assert str(lake.path) in raised.value.message
    assert raised.value.where == "table people"


@pytest.mark.parametrize("feature", ["fancyThing", "typeWidening"])
def test_a_feature_that_cannot_be_read_is_named(lake: Lake, feature: str) -> None:
    lake.ask_for(feature)
    with pytest.raises(AdapterError) as raised:
        Follower(settings(lake))
    assert raised.value.code == "unsupported-feature"
    assert feature.lower() in raised.value.message.lower()
    assert "DROP FEATURE" in raised.value.fix


def test_a_damaged_log_is_told(lake: Lake) -> None:
    (lake.path / "_delta_log" / f"{0:020}.json").write_text("{nonsense")
    with pytest.raises(AdapterError) as raised:
        adapter(lake).tables()
    assert raised.value.code == "table-unreadable"
    assert raised.value.where == "table people"


def test_a_data_file_that_is_gone_is_told_by_its_name(lake: Lake) -> None:
    (file,) = lake.path.glob("*.parquet")
    file.unlink()
    with pytest.raises(AdapterError) as raised:
        Follower(settings(lake))
    assert raised.value.code == "table-unreadable"
    assert file.name in raised.value.message


@pytest.mark.parametrize("key", ["idd", "id, nmae"])
def test_a_key_that_is_no_column_is_told_with_the_nearest(lake: Lake, key: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        adapter(lake, key=key).tables()
    assert raised.value.code == "bad-key"
    assert "did you mean" in raised.value.fix


def test_a_position_of_another_source_calls_for_a_new_snapshot(lake: Lake) -> None:
    position = adapter(lake).snapshot().position
    with pytest.raises(ChangesourceError) as raised:
        list(adapter(lake, key="name").changes(position))
    assert raised.value.code == "position-lost"


def test_a_lost_state_folder_calls_for_a_new_snapshot(lake: Lake) -> None:
    import shutil

    position = adapter(lake).snapshot().position
    lake.append(people((3, "Cy")))
    shutil.rmtree(lake.path.parent / "state")
    with pytest.raises(ChangesourceError) as raised:
        list(adapter(lake).changes(position))
    assert raised.value.code == "position-lost"


def test_the_doctor_tells_a_missing_table(tmp_path: Path) -> None:
    first = Lake(tmp_path / "first", people((1, "a")))
    first.drop()
    (finding,) = adapter(first).examine()
    assert not finding.ok
    assert finding.fix
