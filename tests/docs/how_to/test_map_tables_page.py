"""What the page on mappings shows can be used as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from changesource_sdk.pipeline.mapping.declare import load_mappings, needs_spark
from changesource_sdk.pipeline.mapping.row import RowMapper
from changesource_sdk.pipeline.mapping.table import map_tables
from changesource_sdk.schema import Column, Table
from tests.docs.fences import as_module, block, blocks, configuration

PAGE = "docs/how-to/map-tables.md"
PERSON = Table("person", [Column("id", int), *(Column(n, str) for n in ("name", "email", "country", "deleted_at"))])
ROW = {"id": 1, "name": "Ada Lovelace", "email": "a@x.org", "country": "GB", "deleted_at": None}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's Python, importable under the name it uses."""
    as_module("".join(blocks(PAGE, "python")), tmp_path / "my_mappings.py")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_first_example_maps_a_row(module: None) -> None:
    first = block(PAGE, "# changesource.toml")
    mappings = load_mappings(configuration(first).mapping)
    mapper = RowMapper(map_tables([PERSON], mappings)["person"])
    (row,) = mapper.rows([ROW, {**ROW, "deleted_at": "now"}])
    assert mapper.table.target.full_name == "contact"
    assert set(row) == {"id", "full_name", "email", "country", "initials"}
    assert row["initials"] == "AL"


def test_the_python_example_is_a_mapping(module: None) -> None:
    assert load_mappings({}, "my_mappings:MAPPINGS").keys() == {"person"}


def test_the_sql_example_is_a_mapping() -> None:
    sql = block(PAGE, "[mapping.person]\nfilter")
    assert needs_spark(load_mappings(configuration(sql).mapping)) == "mapping.person.filter"
