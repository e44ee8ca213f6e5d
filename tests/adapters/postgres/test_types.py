from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.postgres.connection import Connection
from adapters.postgres.types import (
    LAST_INSTANT_MS,
    PgType,
    Types,
    Unsynced,
    column_for,
    date_ms,
    decoder,
    number,
    time_ms,
    timestamp_ms,
    timetz_ms,
    used_types,
)
from changesource_sdk.schema import Column, JsonText

TYPES: Types = {
    found.oid: found
    for found in (
        PgType(16, "bool"),
        PgType(17, "bytea"),
        PgType(23, "int4"),
        PgType(25, "text"),
        PgType(114, "json"),
        PgType(600, "point"),
        PgType(1007, "_int4", element=23),
        PgType(1009, "_text", element=25),
        PgType(199, "_json", element=114),
        PgType(1017, "_point", element=600),
        PgType(1043, "varchar"),
        PgType(1184, "timestamptz"),
        PgType(9001, "mood", "public", "e"),
        PgType(9002, "_mood", "public", element=9001),
        PgType(9003, "code", "public", "d", base=1043, base_modifier=9),
        PgType(9004, "codes", "public", "d", base=1009),
        PgType(9005, "date", "other"),
        PgType(9006, "date", "public", "e"),
        PgType(9007, "upc", "public"),
        PgType(9008, "inner", "public", "d", base=9003),
    )
}


def test_a_scalar_column_keeps_its_type_name_and_length() -> None:
    assert column_for("a", 1043, 24, TYPES) == Column("a", "varchar", max_length=20)
    assert column_for("a", 23, -1, TYPES, not_null=True) == Column("a", "int4", optional=False)


def test_an_enum_and_an_array_of_it_are_told_as_such() -> None:
    assert column_for("a", 9001, -1, TYPES) == Column("a", "mood", enum=True)
    assert column_for("a", 9002, -1, TYPES) == Column("a", "mood[]", enum=True)


def test_a_domain_is_what_it_is_based_on_however_deep() -> None:
    assert column_for("a", 9003, -1, TYPES) == Column("a", "varchar", max_length=5)
    assert column_for("a", 9008, -1, TYPES) == Column("a", "varchar", max_length=5)
    assert column_for("a", 9004, -1, TYPES) == Column("a", "text[]")


@pytest.mark.parametrize("oid", [17, 600, 9005, 424242])
def test_a_type_that_clients_cannot_hold_is_not_synced_and_says_why(oid: int) -> None:
    found = column_for("a", oid, -1, TYPES)
    assert isinstance(found, Unsynced)
    assert found.reason


def test_an_array_of_any_type_is_json_to_clients() -> None:
    assert column_for("a", 1017, -1, TYPES) == Column("a", "point[]")


def test_names_that_consumers_would_misread_become_text() -> None:
    assert column_for("a", 9006, -1, TYPES) == Column("a", "text")
    assert column_for("a", 9007, -1, TYPES) == Column("a", "text")


def test_values_of_a_domain_are_read_as_those_of_its_base() -> None:
    assert decoder(9004, TYPES)("{a,NULL}") == ["a", None]


def test_documents_in_an_array_stand_as_values() -> None:
    assert decoder(199, TYPES)('{"{\\"a\\": [1, null]}",NULL}') == [{"a": [1, None]}, None]
    assert type(decoder(114, TYPES)('{"a": 1}')) is JsonText


def test_used_types_hold_what_a_type_is_made_of() -> None:
    assert used_types([9008, 9002], TYPES).keys() == {9008, 9003, 1043, 9002, 9001}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), ("1e+300", 1e300), ("-0", 0.0), ("NaN", None), ("Infinity", 1.7976931348623157e308)],
)
def test_numbers(text: str, value: float | None) -> None:
    assert number(text) == value


def test_a_numeric_beyond_doubles_is_the_largest_one() -> None:
    assert number("-" + "9" * 400) == -1.7976931348623157e308


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1970-01-01", 0),
        ("2024-02-29", 1709164800000),
        ("0999-12-31", -30610310400000),
        ("0001-01-01", -62135596800000),
        ("0001-12-31 BC", -62135683200000),
        ("0044-03-15 BC", -63517824000000),
        ("4713-01-01 BC", -210863520000000),
        ("12024-02-29", 317278684800000),
        ("5874897-12-31", 185331706992000000),
        ("infinity", LAST_INSTANT_MS),
        ("-infinity", -LAST_INSTANT_MS),
    ],
)
def test_dates_of_any_age(text: str, value: int) -> None:
    assert date_ms(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-02-29 12:34:56.789123+00", 1709210096789.123),
        ("2024-02-29 12:34:56", 1709210096000),
        ("2024-02-29 12:34:56.5", 1709210096500),
        ("1969-12-31 23:59:59.123456", -876.544),
        ("0044-03-15 00:00:00+00 BC", -63517824000000),
        ("0044-03-15 00:00:00.25 BC", -63517823999750),
        ("294276-12-31 23:59:59.999999", 9224318015999999.999),
        ("12024-02-29 00:00:01+00", 317278684801000),
        ("infinity", LAST_INSTANT_MS),
        ("-infinity", -LAST_INSTANT_MS),
    ],
)
def test_timestamps_of_any_age(text: str, value: float) -> None:
    assert timestamp_ms(text) == value


@given(st.datetimes(min_value=datetime(1, 1, 1)))
def test_timestamps_are_exact_to_the_microsecond(moment: datetime) -> None:
    microseconds = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    text = moment.isoformat(sep=" ")
    assert timestamp_ms(text) == timestamp_ms(text + "+00") == microseconds / 1000


def test_times_of_day_travel_in_whole_milliseconds() -> None:
    assert time_ms("12:34:56.789999") == 45296789
    assert time_ms("24:00:00") == 86_400_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("00:00:00+00", 0),
        ("01:00:00+05:30", 70_200_000),
        ("23:30:00-01", 1_800_000),
        ("24:00:00+00", 0),
        ("12:00:00.5-00:00:30", 43_230_500),
    ],
)
def test_times_with_an_offset_are_told_in_utc(text: str, value: int) -> None:
    assert timetz_ms(text) == value


def test_dates_and_timestamps_are_those_of_the_server(db: Connection) -> None:
    days = "generate_series(-2000000, 100000000, 777777) AS g(n), LATERAL (SELECT '2000-01-01'::date + n AS day) d"
    for text, milliseconds in db.execute(f"SELECT day::text, extract(epoch FROM day) * 1000 FROM {days}".encode()):
        assert date_ms(text) == milliseconds
    moments = "(SELECT to_timestamp(s) t FROM generate_series(-2e11, 9e12, 33333333333.123457) AS g(s)) m"
    for text, seconds in db.execute(f"SELECT t::text, extract(epoch FROM t) FROM {moments}".encode()):
        assert timestamp_ms(text) == float(seconds * 1000)
