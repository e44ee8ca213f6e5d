"""`changesource doctor` on mappings: whether they fit the store's tables, without Spark where they are not SQL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from changesource_cli.checks.mapping_check import check_mappings
from changesource_sdk.config import ServeConfig
from changesource_sdk.errors import ConfigurationError


def config(data_file: Path, mapping: Mapping[str, object]) -> ServeConfig:
    return ServeConfig(adapter="memory", settings={"file": str(data_file)}, mapping=mapping)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [({}, "none"), ({"issue": {"select": ["id"]}}, "of issue: fit the tables, 0 expressions in SQL")],
)
def test_mappings_that_fit_are_told(data_file: Path, mapping: Mapping[str, object], said: str) -> None:
    assert said in check_mappings(config(data_file, mapping))


@pytest.mark.parametrize(
    ("mapping", "said"),
    [({"isue": {"select": ["id"]}}, "isue"), ({"issue": {"select": ["id", "titel"]}}, "titel")],
)
def test_a_mapping_of_what_is_not_there_is_told_with_its_key(
    data_file: Path, mapping: Mapping[str, object], said: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_mappings(config(data_file, mapping))
    assert said in str(raised.value)
    assert raised.value.fix


def test_tables_that_cannot_be_read_are_left_to_another_check(tmp_path: Path) -> None:
    told = check_mappings(config(tmp_path / "none.json", {"issue": {"select": ["id"]}}))
    assert told == "not checked, the tables cannot be read"


def test_without_an_adapter_there_is_nothing_to_check() -> None:
    assert "not checked" in check_mappings(ServeConfig(mapping={"issue": {"select": ["id"]}}))
