"""Tables from embedded schemas and from samples."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kafka.schemas import NAMED_TYPES, PLAIN_TYPES, described_column, described_table, infer_table
from changesource_sdk.adapter import Column
from changesource_sdk.errors import InvalidSchema
from changesource_sdk.pipeline.normalize import converter
from changesource_sdk.pipeline.snapshotting import checked_schema


def test_an_embedded_schema_describes_columns_and_key() -> None:
    fields = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "name", "type": "string", "optional": True},
        {"field": "due", "type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1},
    ]
    table = described_table("shop.orders", ["id"], fields)
    assert table.full_name == "shop.orders"
    assert [(c.name, c.data_type, c.optional) for c in table.columns] == [
        ("id", "int8", False),
        ("name", "text", True),
        ("due", "date", True),
    ]


@pytest.mark.parametrize("name", NAMED_TYPES.values())
def test_every_named_type_is_one_that_consumers_hold(name: str) -> None:
    checked_schema([described_table("t", ["id"], [{"field": "id", "type": "int32"}])])
    assert Column("c", name).zql_type is not None


def test_an_unknown_type_says_what_to_do() -> None:
    assert "struct" in PLAIN_TYPES
    with pytest.raises(InvalidSchema, match="the field x the type union") as caught:
        described_column({"field": "x", "type": "union"})
    assert caught.value.fix == "declare the table's columns in the settings"


def test_a_sample_gives_a_table_and_says_why() -> None:
    rows = [
        {"id": 1, "name": "a", "score": 1, "tags": ["x"], "odd": 1},
        {"id": 2, "name": None, "score": 1.5, "tags": {}, "odd": "text", "late": True},
    ]
    found = infer_table("item", ["id"], rows)
    assert {column.name: column.data_type for column in found.table.columns} == {
        "id": "int8",
        "name": "text",
        "score": "float8",
        "tags": "json",
        "odd": "json",
        "late": "bool",
    }
    assert found.table.key == ("id",)
    assert found.report() == (
        "item, from 2 rows: id int8 (key); name text (null or absent in 1); score float8 (mixed: float8, int8); "
        "tags json; odd json (mixed: int8, text); late bool (null or absent in 1)"
    )


def test_a_column_that_was_always_null_takes_anything() -> None:
    found = infer_table("item", ["id"], [{"id": "a", "x": None}])
    assert found.findings == ("id text (key)", "x json (never a value)")


@pytest.mark.parametrize("rows", [[], [{"name": "a"}], [{"id": 1}, {"id": None}]])
def test_a_key_that_is_not_in_every_row_is_refused(rows: list[dict[str, object]]) -> None:
    with pytest.raises(InvalidSchema, match="key column id of item is not in every one"):
        infer_table("item", ["id"], rows)


VALUES = st.sampled_from([None, True, 0, 2**62, -1.5, "text", [1], {"a": None}])


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({"id": st.integers(0, 99)}, optional={"a": VALUES, "b": VALUES}), min_size=1))
def test_every_row_of_the_sample_fits_the_table(rows: list[dict[str, object]]) -> None:
    table = infer_table("t", ["id"], rows).table
    converters = {column.name: converter(column) for column in table.columns}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                converters[name](value)
