"""Values, column by column."""

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changesource_sdk.pipeline.encoding.normalize import Unsuitable, converter
from changesource_sdk.schema import Column, JsonText


class Mood(Enum):
    HAPPY = "happy"


ID = UUID("12345678-1234-5678-1234-567812345678")


def convert(data_type: str, value: object, *, enum: bool = False) -> object:
    return converter(Column("c", data_type, enum=enum))(value)


@pytest.mark.parametrize(
    ("data_type", "value", "wire"),
    [
        ("int8", 2**63 - 1, 2**63 - 1),
        ("int4", -(2**63), -(2**63)),
        ("int8", True, 1),
        ("int8", 5.0, 5),
        ("bigint", Decimal("7"), 7),
        ("float8", 1, 1),
        ("float8", 1.5, 1.5),
        ("numeric(10,2)", Decimal("1.25"), 1.25),
        ("numeric", Decimal("9007199254740993"), 9007199254740993),
        ("numeric", Decimal(2**70), float(2**70)),
        ("bool", 0, False),
        ("boolean", True, True),
        ("text", "é\0", "é\0"),
        ("varchar(20)", ID, str(ID)),
        ("text", Decimal("1.10"), "1.10"),
        ("text", Mood.HAPPY, "happy"),
        ("uuid", ID, str(ID)),
        ("uuid", ID.hex, str(ID)),
        ("inet", "10.0.0.1", "10.0.0.1"),
        ("timestamptz", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000),
        ("timestamptz", datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        ("timestamp", datetime(1970, 1, 1, 0, 0, 0, 1500), 1.5),
        ("timestamp with time zone", datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), -1),
        ("timestamptz", date(1970, 1, 2), 86_400_000),
        ("timestamptz", 12.5, 12.5),
        ("date", date(1969, 12, 31), -86_400_000),
        ("date", datetime(1970, 1, 2, 13), 86_400_000),
        ("time", time(0, 1), 60_000),
        ("timetz", time(1, 0, tzinfo=timezone(timedelta(hours=2))), 23 * 3_600_000),
        ("time", timedelta(hours=24), 86_400_000),
        ("json", {"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'),
        ("jsonb", "text", '"text"'),
        ("json", 2**80, str(2**80)),
        ("json", JsonText('{"a": 1}'), '{"a": 1}'),
        ("json", JsonText("null"), "null"),
        (
            "json",
            JsonText('["\\ud800", 1e400, 123456789012345678901234567890]'),
            '["\\ud800", 1e400, 123456789012345678901234567890]',
        ),
        ("text[]", ["a", None], '["a",null]'),
        ("int4[]", (1, [2, 3]), "[1,[2,3]]"),
        ("timestamptz[]", [datetime(1970, 1, 1, tzinfo=UTC)], "[0]"),
        ("json[]", [{"a": 1}], '[{"a":1}]'),
        ("text[]", JsonText('["a"]'), '["a"]'),
        ("bytea", b"\x00\xff", "\\x00ff"),
        ("hstore", "a=>1", "a=>1"),
        ("interval", 1.5, 1.5),
        ("xml", True, True),
    ],
)
def test_a_value_with_one_meaning_is_converted(data_type: str, value: object, wire: object) -> None:
    converted = convert(data_type, value)
    assert converted == wire
    assert type(converted) is type(wire)


def test_an_enum_column_takes_its_members() -> None:
    assert convert("mood", Mood.HAPPY, enum=True) == "happy"
    assert convert("mood", "1", enum=True) == "1"


@pytest.mark.parametrize(
    ("data_type", "value", "reason"),
    [
        ("int8", 2**63, "beyond 64 bits"),
        ("int8", 1.5, "type float"),
        ("int8", "5", "type str"),
        ("int8", math.nan, "NaN"),
        ("float8", math.inf, "NaN or infinity"),
        ("float8", Decimal("NaN"), "type Decimal"),
        ("numeric", "1.5", "type str"),
        ("bool", "t", "type str"),
        ("bool", 2, "type int"),
        ("text", 5, "type int"),
        ("text", {"a": 1}, "type dict"),
        ("text", "\ud800", "lone surrogate"),
        ("uuid", "00123", "type str"),
        ("uuid", 5, "type int"),
        ("pg_lsn", "12", "looks like a number"),
        ("timestamptz", "2024-01-01", "point in time"),
        ("date", True, "point in time"),
        ("time", "12:00", "time of day"),
        ("json", math.nan, "not JSON"),
        ("json", {"a": [None, math.inf]}, "not JSON"),
        ("json", {"a": {1, 2}}, "not JSON"),
        ("json", "\ud800", "not JSON"),
        ("json", JsonText("{"), "not JSON"),
        ("json", JsonText("[NaN]"), "not JSON"),
        ("text[]", "{a,b}", "an array"),
        ("int4[]", [1, "2"], "type str"),
        ("bytea", {"a": 1}, "type dict"),
        ("interval", math.nan, "NaN"),
    ],
)
def test_any_other_value_is_refused_with_its_kind_and_a_fix(data_type: str, value: object, reason: str) -> None:
    with pytest.raises(Unsuitable) as refused:
        convert(data_type, value)
    assert reason in refused.value.reason
    assert refused.value.fix


def test_a_refusal_does_not_repeat_the_data() -> None:
    with pytest.raises(Unsuitable) as refused:
        convert("int8", "my secret")
    assert "my secret" not in str(refused.value)


# Beyond this range a float's 53 bits no longer hold milliseconds with three decimals.
@given(st.datetimes(datetime(1835, 1, 1), datetime(2105, 1, 1), timezones=st.just(UTC)))
def test_timestamps_keep_their_microseconds(value: datetime) -> None:
    milliseconds = converter(Column("c", "timestamptz"))(value)
    assert isinstance(milliseconds, int | float)
    elapsed = value - datetime(1970, 1, 1, tzinfo=UTC)
    exact = elapsed.days * 86_400_000_000 + elapsed.seconds * 1_000_000 + elapsed.microseconds
    assert round(milliseconds * 1000) == exact


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
)


@given(json_values)
def test_json_comes_back_as_it_was(value: object) -> None:
    assert json.loads(str(convert("json", value))) == value
