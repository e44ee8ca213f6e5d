"""Tables from declarations, embedded schemas and the values themselves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kafka.records.schemas import Survey, table_of
from adapters.kafka.settings import TableOptions
from adapters.kafka.topics.surveying import Surveyor
from adapters.kafka.types import Encoded, reader
from changesource_sdk.errors import InvalidSchema
from changesource_sdk.pipeline.encoding.normalize import converter
from tests.adapters.kafka.made_records import a_record, settings_of

OPTIONS = TableOptions("item", "topic")


def surveyed(*rows: dict[str, object], key: tuple[str, ...] | None = None) -> Survey:
    survey = Survey(key=key)
    for row in rows:
        survey.add_row(row)
    return survey


def test_declared_columns_hold_and_no_others() -> None:
    options = TableOptions("item", "topic", ("code",), {"code": Encoded("text"), "due": Encoded("date", "days")})
    found, inferred = table_of("topic", options, surveyed({"id": 1}))
    assert (found.table.column_names, found.table.key, found.is_closed) == (("code", "due"), ("code",), True)
    assert inferred is None


def test_the_newest_schema_holds() -> None:
    survey = surveyed({"id": 1, "old": "x"}, key=("id",))
    survey.describe({"id": Encoded("int4"), "new": Encoded("text")}, 20)
    survey.describe({"id": Encoded("int4"), "old": Encoded("text")}, 10)
    found, inferred = table_of("topic", OPTIONS, survey)
    assert (found.table.column_names, found.table.key, found.is_closed) == (("id", "new"), ("id",), False)
    assert inferred is None


def test_values_give_a_table_and_it_is_said_why() -> None:
    survey = surveyed(
        {"id": 1, "name": "a", "score": 1, "tags": ["x"], "odd": 1, "doc": 1},
        {"id": 2, "name": None, "score": 1.5, "tags": {}, "odd": "text", "doc": {}, "late": True},
        key=("id",),
    )
    found, inferred = table_of("topic", OPTIONS, survey)
    assert {column.name: column.data_type for column in found.table.columns} == {
        "id": "int8",
        "name": "text",
        "score": "float8",
        "tags": "json",
        "odd": "text",
        "doc": "json",
        "late": "bool",
    }
    assert str(inferred) == (
        "item, from 2 rows of topic topic: id int8 (key); name text (null or absent in 1); "
        "score float8 (mixed: float8, int8); tags json; odd text (mixed: int8, text); doc json (mixed: int8, json); "
        "late bool (null or absent in 1)"
    )


def test_a_column_that_was_always_null_takes_anything() -> None:
    _, inferred = table_of("topic", OPTIONS, surveyed({"id": "a", "x": None}))
    assert inferred is not None
    assert inferred.findings == ("id text (key)", "x json (never a value)")


def test_a_topic_without_records_asks_for_a_declaration() -> None:
    with pytest.raises(InvalidSchema, match="topic has no records that show the columns") as caught:
        table_of("topic", OPTIONS, Survey())
    assert "[set.tables.item]" in caught.value.fix


def test_records_that_cannot_be_read_point_to_format_and_key_format() -> None:
    surveyor = Surveyor(settings_of(format="debezium"), "items")
    surveyor.take(a_record("items", 3, 1, {"id": 1}))
    surveyor.take(a_record("items", 4, b"user:1", {"id": 1}))
    surveyor.take(a_record("items", 5, 1, None))
    with pytest.raises(InvalidSchema) as caught:
        table_of("items", OPTIONS, surveyor.survey)
    told = "2 could not be read, such as items[0] offset 3: its value is no Debezium envelope"
    assert caught.value.message == f"topic items has no records that show the columns of its table; {told}"
    assert "`format`" in caught.value.fix
    assert "`key_format`" in caught.value.fix


def test_an_integer_beyond_64_bits_makes_a_column_text_and_is_called_so() -> None:
    surveyor = Surveyor(settings_of(), "items")
    surveyor.take(a_record("items", 0, 1, b'{"id":1,"n":%d}' % (1 << 70)))
    _, inferred = table_of("items", OPTIONS, surveyor.survey)
    assert inferred is not None
    assert inferred.findings == ("id int8 (key)", "n text (integers beyond 64 bits)")


VALUES = st.sampled_from([None, True, 0, 2**62, 2**63, -1.5, "text", [1], {"a": None}])
ROWS = st.lists(st.fixed_dictionaries({"id": st.integers(0, 99)}, optional={"a": VALUES, "b": VALUES}), max_size=12)


@settings(deadline=None)
@given(ROWS, ROWS)
def test_surveys_of_parts_add_up(one: list[dict[str, object]], other: list[dict[str, object]]) -> None:
    parts = surveyed(*one, key=("id",))
    parts.add(surveyed(*other))
    assert parts == surveyed(*one, *other, key=("id",))


@settings(deadline=None)
@given(ROWS)
def test_every_row_fits_the_table(rows: list[dict[str, object]]) -> None:
    found, _ = table_of("topic", OPTIONS, surveyed({"id": 1}, *rows))
    converters = {column.name: converter(column) for column in found.table.columns}
    readers = {column.name: reader(column.data_type, "", days=False) for column in found.table.columns}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                read = readers[name]
                converters[name](read(value) if read else value)
