"""Every encoding that records use becomes a value its column takes."""

from __future__ import annotations

from base64 import b64encode
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.kafka.types import ENCODINGS, Encoded, encoded_as, inferred_type, reader
from changesource_sdk.pipeline.encoding.normalize import converter
from changesource_sdk.schema import Column, JsonText

DEBEZIUM, CONNECT = "io.debezium", "org.apache.kafka.connect.data"


def travelled(field: dict[str, object], value: object) -> object:
    """A value of a field with a schema, as it reaches consumers."""
    kind = encoded_as({"field": "x", **field})
    read = reader(kind.data_type, kind.encoding, days=True)
    return converter(Column("x", kind.data_type))(read(value) if read else value)


@pytest.mark.parametrize(
    ("field", "value", "wire"),
    [
        ({"type": "boolean"}, True, True),
        ({"type": "int16"}, 7, 7),
        ({"type": "int64"}, 2**60, 2**60),
        ({"type": "double"}, 1.5, 1.5),
        ({"type": "string"}, "héllo", "héllo"),
        ({"type": "bytes"}, "AP8=", "\\x00ff"),
        ({"type": "array"}, [1, None], "[1,null]"),
        ({"type": "struct", "name": "some.Point"}, {"x": 1}, '{"x":1}'),
        ({"type": "int32", "name": f"{DEBEZIUM}.time.Date"}, 19_723, 1_704_067_200_000),
        ({"type": "int32", "name": f"{DEBEZIUM}.time.Date"}, -1, -86_400_000),
        ({"type": "int64", "name": f"{DEBEZIUM}.time.Timestamp"}, 1_704_067_200_123, 1_704_067_200_123),
        ({"type": "int64", "name": f"{DEBEZIUM}.time.MicroTimestamp"}, 1_704_067_200_123_456, 1_704_067_200_123.456),
        ({"type": "int64", "name": f"{DEBEZIUM}.time.NanoTimestamp"}, 1_704_067_200_000_000_000, 1_704_067_200_000),
        ({"type": "string", "name": f"{DEBEZIUM}.time.ZonedTimestamp"}, "2024-01-01T00:00:00.5Z", 1_704_067_200_500),
        ({"type": "string", "name": f"{DEBEZIUM}.time.ZonedTimestamp"}, "2024-01-01T01:00:00+01:00", 1_704_067_200_000),
        ({"type": "int32", "name": f"{DEBEZIUM}.time.Time"}, 3_600_000, 3_600_000),
        ({"type": "int64", "name": f"{DEBEZIUM}.time.MicroTime"}, 3_600_000_500, 3_600_000.5),
        ({"type": "int64", "name": f"{DEBEZIUM}.time.NanoTime"}, 3_600_000_000_000, 3_600_000),
        ({"type": "string", "name": f"{DEBEZIUM}.time.ZonedTime"}, "00:30:00+01:00", 84_600_000),
        ({"type": "int32", "name": f"{DEBEZIUM}.time.Year"}, 1999, 1999),
        ({"type": "string", "name": f"{DEBEZIUM}.data.Json"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "string", "name": f"{DEBEZIUM}.data.Enum"}, "open", "open"),
        (
            {"type": "string", "name": f"{DEBEZIUM}.data.Uuid"},
            "09204c2e-6cf7-4a54-a7dc-7eb1a8f0b8a5",
            "09204c2e-6cf7-4a54-a7dc-7eb1a8f0b8a5",
        ),
        ({"type": "struct", "name": f"{DEBEZIUM}.data.VariableScaleDecimal"}, {"scale": 1, "value": "Dw=="}, 1.5),
        ({"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}}, "AJY=", 1.5),
        ({"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "0"}}, "/w==", -1),
        ({"type": "int32", "name": f"{CONNECT}.Date"}, 1, 86_400_000),
        ({"type": "int32", "name": f"{CONNECT}.Time"}, 5, 5),
        ({"type": "int64", "name": f"{CONNECT}.Timestamp"}, 5, 5),
    ],
)
def test_values_with_a_schema_reach_consumers(field: dict[str, object], value: object, wire: object) -> None:
    assert travelled(field, value) == wire


def test_a_type_that_connect_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="'quux'"):
        encoded_as({"field": "x", "type": "quux"})


@given(st.integers())
def test_decimals_come_back_exactly(unscaled: int) -> None:
    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    read = reader("numeric", "decimal:4")
    assert read is not None
    assert read(b64encode(data).decode()) == Decimal(f"{unscaled}E-4")


@pytest.mark.parametrize(
    ("data_type", "value", "read"),
    [
        ("date", "2024-01-01", date(2024, 1, 1)),
        ("timestamptz", "2024-01-01T00:00:00", datetime(2024, 1, 1)),
        ("timestamp", 5, 5),
        ("timestamp", 5.5, 5.5),
        ("time", "01:02:03", time(1, 2, 3)),
        ("time", 5, 5),
        ("numeric", "1.50", Decimal("1.50")),
        ("numeric", 1.5, 1.5),
        ("text", 5, "5"),
        ("text", True, "true"),
        ("text", "x", "x"),
        ("bytea", "AA==", b"\0"),
    ],
)
def test_values_without_a_schema_are_read_as_suits_their_type(data_type: str, value: object, read: object) -> None:
    found = reader(data_type)
    assert found is not None
    assert found(value) == read


def test_a_time_with_an_offset_is_moved_to_utc() -> None:
    found = reader("timetz")
    assert found is not None
    read = found("23:30:00-01:00")
    assert isinstance(read, time)
    assert (read.hour, read.minute, read.utcoffset()) == (0, 30, None)


def test_a_zone_is_kept_in_a_moment() -> None:
    found = reader("timestamptz")
    assert found is not None
    assert found("2024-01-01T00:00:00+02:00") == datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2)))


def test_days_are_counted_only_where_the_format_does() -> None:
    as_days, as_ms = reader("date", days=True), reader("date")
    assert as_days is not None
    assert as_ms is not None
    assert (as_days(1), as_ms(86_400_000)) == (86_400_000, 86_400_000)


@pytest.mark.parametrize(
    ("encoding", "value"), [("days", True), ("micros", "x"), ("base64", 5), ("base64", "?"), ("variable-decimal", 5)]
)
def test_what_an_encoding_cannot_be_is_refused(encoding: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        ENCODINGS[encoding](value)


def test_a_decimal_that_is_none_is_refused() -> None:
    read = reader("numeric")
    assert read is not None
    with pytest.raises(ValueError, match="no decimal"):
        read("12x")


def test_an_encoding_nobody_knows_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="days, millis"):
        reader("date", "fortnights")


def test_documents_stay_as_they_are_spelled() -> None:
    read = reader("json", "document")
    assert read is not None
    assert read("[1, 2]") == JsonText("[1, 2]")
    assert isinstance(read("[1, 2]"), JsonText)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, None), (True, "bool"), (1, "int8"), (1.5, "float8"), ("x", "text"), ({}, "json"), ([1], "json")],
)
def test_types_are_inferred_from_json_values(value: object, kind: str | None) -> None:
    assert inferred_type(value) == kind


def test_plain_types_have_no_encoding() -> None:
    assert encoded_as({"field": "x", "type": "int64"}) == Encoded("int8")
