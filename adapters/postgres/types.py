"""Postgres types and values: one decoding of text for the snapshot and the stream. Pure.

COPY and logical replication write values in the same text form if the session has the settings of `connection`.
`decoder` converts that text, so a row from the snapshot and the same row from the stream are equal. `column_for` gives
the column as consumers see it, or the reason why it is not synced.

Values that JSON or clients cannot hold: infinite dates become the first or last instant of a client's Date, infinite
numbers the largest finite ones, so that comparisons still hold; NaN becomes null. Times of day are whole milliseconds;
dates and timestamps are milliseconds with the microseconds as a fraction.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

from adapters.postgres.array_text import ArrayReader
from changesource_sdk import Column, JsonText
from protocol.data_types import KINDS

Decoder = Callable[[str], object]
"""Converts the text of a value other than NULL to the value in the change."""

DAY_MS = 86_400_000
LAST_INSTANT_MS = 8_640_000_000_000_000
"""The last instant that a JavaScript Date can hold; stands for infinity."""

_LARGEST = 1.7976931348623157e308
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH, _EPOCH_UTC = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_GREGORIAN_CYCLE_YEARS, _GREGORIAN_CYCLE_DAYS = 400, 146_097
_LONG_DATE = re.compile(r"(\d+)-(\d\d)-(\d\d)")
_INTEGERS = ("int2", "int4", "int8")
_NUMBERS = ("numeric", "float4", "float8")
_WITH_LENGTH = ("varchar", "bpchar")
_LENGTH_HEADER = 4
_OWN_SCHEMA = "pg_catalog"
_ISBN_FAMILY = ("isbn", "isbn13", "issn", "issn13", "ismn", "ismn13", "ean13", "upc")
_ROUNDED = ("numeric", "time", "timetz")


@dataclass(frozen=True, slots=True)
class PgType:
    """One row of `pg_type`: `kind` is its typtype, `element` an array's element type, `base` a domain's base type."""

    oid: int
    name: str
    schema: str = _OWN_SCHEMA
    kind: str = "b"
    element: int = 0
    base: int = 0
    base_modifier: int = -1


@dataclass(frozen=True, slots=True)
class Unsynced:
    """Why a column is not synced."""

    reason: str


Types = Mapping[int, PgType]
"""Every type of the database by its oid."""


def column_for(name: str, oid: int, modifier: int, types: Types, *, not_null: bool = False) -> Column | Unsynced:
    """The column as consumers see it. A domain has the type it is based on."""
    pg_type, modifier = _without_domain(oid, modifier, types)
    if pg_type is None:
        return Unsynced(f"its type (oid {oid}) is unknown")
    if pg_type.element:
        return _array_column(name, pg_type, types, not_null)
    if pg_type.kind == "e":
        data_type = _enum_name(pg_type)
        return Column(name, data_type, optional=not not_null, enum=data_type != "text")
    data_type = _scalar_name(pg_type)
    if data_type not in KINDS:
        return Unsynced(f"clients cannot hold values of type {pg_type.name}")
    length = modifier - _LENGTH_HEADER if data_type in _WITH_LENGTH and modifier >= _LENGTH_HEADER else None
    return Column(name, data_type, optional=not not_null, max_length=length)


def decoder(oid: int, types: Types) -> Decoder:
    """How to decode values of this type; those of types that are not synced stay text."""
    pg_type, _ = _without_domain(oid, -1, types)
    if pg_type is None:
        return str
    if pg_type.element:
        element = decoder(pg_type.element, types)
        # An array is sent as JSON, so its JSON documents are parsed to become elements.
        return ArrayReader(json.loads if element is JsonText else element).read
    return str if pg_type.kind == "e" else _SCALARS.get(_scalar_name(pg_type), str)


def used_types(oids: Iterable[int], types: Types) -> dict[int, PgType]:
    """The types of these oids and the element and base types that they need."""
    used: dict[int, PgType] = {}
    pending = list(oids)
    while pending:
        pg_type = types.get(pending.pop())
        if pg_type is not None and pg_type.oid not in used:
            used[pg_type.oid] = pg_type
            pending += [pg_type.element, pg_type.base]
    return used


def is_rounded(oid: int, types: Types) -> bool:
    """Whether two different values of a type can become equal in changes; a unique index on it is not unique then."""
    pg_type, _ = _without_domain(oid, -1, types)
    return pg_type is not None and pg_type.kind == "b" and pg_type.name in _ROUNDED


def _without_domain(oid: int, modifier: int, types: Types) -> tuple[PgType | None, int]:
    pg_type = types.get(oid)
    while pg_type is not None and pg_type.kind == "d":
        modifier = pg_type.base_modifier if modifier == -1 else modifier
        pg_type = types.get(pg_type.base)
    return pg_type, modifier


def _array_column(name: str, array: PgType, types: Types, not_null: bool) -> Column | Unsynced:
    element, _ = _without_domain(array.element, -1, types)
    if element is None or element.element:
        return Unsynced(f"clients cannot hold values of type {array.name}")
    is_enum = element.kind == "e"
    data_type = _enum_name(element) if is_enum else _scalar_name(element)
    return Column(name, f"{data_type}[]", optional=not not_null, enum=is_enum and data_type != "text")


def _enum_name(pg_type: PgType) -> str:
    """The name of the enum, or `text` if the consumer would read that name as another type."""
    unusable = pg_type.name.lower() in KINDS or any(mark in pg_type.name for mark in ("|", "[", "("))
    return "text" if unusable else pg_type.name


def _scalar_name(pg_type: PgType) -> str:
    """The name of the data type.

    A type of another schema with the name of a built-in type gets its schema as prefix.
    """
    if pg_type.name == "upc":
        # The consumer would store the digits as a number and lose leading zeros.
        return "text"
    is_known = pg_type.schema == _OWN_SCHEMA or pg_type.name in _ISBN_FAMILY
    return pg_type.name if is_known or pg_type.name not in KINDS else f"{pg_type.schema}.{pg_type.name}"


def number(text: str) -> float | None:
    """A float or numeric; None for NaN."""
    value = float(text)
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else math.copysign(_LARGEST, value)


def boolean(text: str) -> bool:
    return text == "t"


def date_ms(text: str) -> int:
    """A date, from 4713 BC on, as the milliseconds of its UTC midnight."""
    try:
        return (date.fromisoformat(text).toordinal() - _EPOCH_DAY) * DAY_MS
    except ValueError:
        return _unusual_date_ms(text)


def _unusual_date_ms(text: str) -> int:
    if text.endswith("infinity"):
        return -LAST_INSTANT_MS if text[0] == "-" else LAST_INSTANT_MS
    parts = _LONG_DATE.match(text)
    if parts is None:
        raise ValueError(f"{text!r} is no date in ISO style")
    year, month, day = map(int, parts.groups())
    if text.endswith("BC"):
        year = 1 - year
    # Python's dates have the years 1 to 9999. The calendar repeats every 400 years, so compute in another cycle.
    cycles, within = divmod(year - 1, _GREGORIAN_CYCLE_YEARS)
    ordinal = date(within + 1, month, day).toordinal() + cycles * _GREGORIAN_CYCLE_DAYS
    return (ordinal - _EPOCH_DAY) * DAY_MS


def timestamp_ms(text: str) -> int | float:
    """A timestamp as epoch milliseconds with a fraction; its zone, if it has one, is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _unusual_timestamp_ms(text)
    elapsed = moment - (_EPOCH if moment.tzinfo is None else _EPOCH_UTC)
    return _milliseconds((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds)


def _milliseconds(microseconds: int) -> int | float:
    return microseconds // 1000 if microseconds % 1000 == 0 else microseconds / 1000


def _unusual_timestamp_ms(text: str) -> int | float:
    if text.endswith("infinity"):
        return _unusual_date_ms(text)
    day, _, clock = text.partition(" ")
    era = " BC" if text.endswith("BC") else ""
    clock, offset_s = _clock_and_offset(clock.removesuffix(" BC"))
    return _milliseconds((_unusual_date_ms(day + era) - offset_s * 1000) * 1000 + _clock_us(clock))


def time_ms(text: str) -> int:
    """A time of day as whole milliseconds since midnight; 24:00 is the end of the day."""
    return _clock_us(text) // 1000


def timetz_ms(text: str) -> int:
    """A time of day with an offset as whole milliseconds since midnight in UTC."""
    clock, offset_s = _clock_and_offset(text)
    return (_clock_us(clock) // 1000 - offset_s * 1000) % DAY_MS


def _clock_us(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    whole, _, fraction = seconds.partition(".")
    in_seconds = int(hours) * 3600 + int(minutes) * 60 + int(whole)
    return in_seconds * 1_000_000 + (int(fraction.ljust(6, "0")) if fraction else 0)


def _clock_and_offset(text: str) -> tuple[str, int]:
    """`12:34:56+05:30` as the clock and the seconds by which it is ahead of UTC."""
    for sign, ahead in (("+", 1), ("-", -1)):
        clock, separator, offset = text.partition(sign)
        if separator:
            parts = [int(part) for part in offset.split(":")]
            seconds = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
            return clock, ahead * seconds
    return text, 0


_SCALARS: dict[str, Decoder] = {
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_NUMBERS, number),
    "bool": boolean,
    "json": JsonText,
    "jsonb": JsonText,
    "date": date_ms,
    "timestamp": timestamp_ms,
    "timestamptz": timestamp_ms,
    "time": time_ms,
    "timetz": timetz_ms,
}
