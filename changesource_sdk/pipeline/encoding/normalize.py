"""Converts values from what the upstream's driver returns to what is sent to consumers, column by column.

A consumer does not check values against types; an unsuitable one is stored and surfaces later as a broken query, or
stops the consumer for good. So each column gets a `Converter` that turns every Python value that has one meaning there
into its wire form and refuses the rest, saying why. Nothing is guessed: text is not parsed, numbers are not rounded.

| column | accepted | travels as |
|---|---|---|
| integer | int within 64 bits, bool, integral float or Decimal | integer |
| number | int, float, Decimal; finite | number |
| date, timestamp | date, datetime (naive means UTC), epoch milliseconds | epoch milliseconds |
| time | time, timedelta, milliseconds since midnight | milliseconds |
| boolean | bool, 0, 1 | boolean |
| text, enum | str, UUID, Decimal, Enum member | string |
| uuid | UUID, str in any of its spellings | string with hyphens |
| json | dict, list, str, numbers, bool; `JsonText` as it is | JSON text |
| array | list, tuple, set of element values | JSON text |
| other types | str, int, float, bool, bytes (as `\\x…` hex) | same; not synced to clients |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import orjson

from changesource_sdk.schema import Column, JsonText
from protocol.data_types import INT64_MAX, INT64_MIN

Converter = Callable[[object], object]
"""Gives the wire value or raises `Unsuitable`; never called with None."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000
_CANONICAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


class Unsuitable(Exception):
    """Why a column does not accept a value, and what to do; the caller adds table and column."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason, fix)
        self.reason = reason
        self.fix = fix


def converter(column: Column) -> Converter:
    """The converter of one column."""
    if column.is_array:
        return _array_converter(column)
    match column.kind:
        case "integer":
            return to_integer
        case "number":
            return _number_converter(column.data_type.lower())
        case "boolean":
            return to_boolean
        case "string":
            return to_text if column.enum or _has_text_affinity(column.data_type) else to_code
        case "uuid":
            return to_uuid
        case "json":
            return to_json_text
        case _:
            return to_unsynced


def _refuse(value: object, wanted: str, fix: str) -> Unsuitable:
    return Unsuitable(f"{describe(value)} where {wanted} is needed", fix)


def describe(value: object) -> str:
    """The kind of a value, without the value: data does not belong in logs."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN or infinity"
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        return "an integer beyond 64 bits"
    return f"a value of type {type(value).__name__}"


def to_integer(value: object) -> int:
    """Integers, and numbers that are whole."""
    number = value
    if isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value):
        number = int(value)
    if isinstance(number, int) and INT64_MIN <= number <= INT64_MAX:
        return int(number)
    raise _refuse(value, "a 64-bit integer", "give an int, or declare the column float8, numeric or text")


def to_number(value: object) -> int | float:
    """Finite numbers; a Decimal keeps its integer exactly, its fraction as a float."""
    if isinstance(value, Decimal) and value.is_finite():
        value = int(value) if value == int(value) and abs(value) <= INT64_MAX else float(value)
    if isinstance(value, int) and INT64_MIN <= value <= INT64_MAX:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise _refuse(value, "a finite number", "give an int, float or Decimal; use null for NaN, text for exact decimals")


def to_boolean(value: object) -> bool:
    """Booleans, and 0 or 1."""
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise _refuse(value, "a boolean", "give True or False")


def to_text(value: object) -> str:
    """Strings, and what has one obvious spelling."""
    if isinstance(value, Enum):
        value = value.value
    if not isinstance(value, str | UUID | Decimal):
        raise _refuse(value, "a text", "give a str, or declare the column with the type of its values")
    text = str(value)
    if not text.isascii() and _has_surrogate(text):
        raise Unsuitable("a text with a lone surrogate", "decode the text with errors='replace' or strip it")
    return text


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def to_code(value: object) -> str:
    """Texts in a column whose consumer would turn anything that looks like a number into one."""
    text = to_text(value)
    try:
        float(text)
    except ValueError:
        return text
    raise Unsuitable(
        "a text that looks like a number, which the consumer would store as one", "declare the column text"
    )


def to_uuid(value: object) -> str:
    """UUIDs, spelled with hyphens."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str) and _CANONICAL_UUID(value):
        return value
    try:
        return str(UUID(value if isinstance(value, str) else ""))
    except ValueError:
        fix = "give a UUID, or declare the column text: the consumer may turn other ids into numbers"
        raise _refuse(value, "a UUID", fix) from None


def to_epoch_ms(value: object) -> int | float:
    """Dates and times of day as milliseconds since 1970, microseconds as a fraction."""
    match value:
        case datetime():
            elapsed = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
            return _milliseconds(elapsed)
        case date():
            return (value.toordinal() - _EPOCH_DAY) * _DAY_MS
        case str() | bool():
            raise _refuse(value, "a point in time", "parse it: give a datetime, a date or epoch milliseconds")
    return to_number(value)


def to_date_ms(value: object) -> int | float:
    """Days as the milliseconds of their UTC midnight."""
    if isinstance(value, datetime):
        value = value.date()
    return to_epoch_ms(value)


def to_time_ms(value: object) -> int | float:
    """Times of day as milliseconds since midnight, those with an offset in UTC."""
    match value:
        case time():
            return _milliseconds(_since_midnight(value))
        case timedelta():
            return _milliseconds(value)
        case str() | bool():
            raise _refuse(value, "a time of day", "parse it: give a time or milliseconds since midnight")
    return to_number(value)


def _since_midnight(value: time) -> timedelta:
    clock = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    offset = value.utcoffset()
    return (clock - offset) % timedelta(days=1) if offset else clock


def _milliseconds(elapsed: timedelta) -> int | float:
    microseconds = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    return microseconds // 1000 if microseconds % 1000 == 0 else microseconds / 1000


def _number_converter(data_type: str) -> Converter:
    if data_type.startswith("timestamp"):
        return to_epoch_ms
    if data_type.startswith("date"):
        return to_date_ms
    return to_time_ms if data_type.startswith("time") else to_number


def to_json_text(value: object) -> str:
    """A JSON document as text; `JsonText` is checked and kept."""
    if isinstance(value, JsonText):
        return _checked_json(value)
    try:
        encoded = orjson.dumps(value)
        # orjson writes NaN as null and refuses large integers; the standard encoder knows better, but is slow.
        text = encoded.decode() if b"null" not in encoded else _exact_json(value)
    except TypeError:
        text = _exact_json(value)
    return text


def _exact_json(value: object) -> str:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError) as error:
        fix = "give dicts, lists, str, finite numbers, bool or None"
        raise Unsuitable(f"a value that is not JSON: {error}", fix) from error
    return text


def _checked_json(document: JsonText) -> str:
    text = str(document)
    try:
        orjson.loads(text)
    except ValueError:
        _check_unusual_json(text)
    return text


def _check_unusual_json(text: str) -> None:
    """Documents with numbers of any size, or escapes of half a character, are JSON, too; stores may hold them."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        fix = "give a JSON document in JsonText, or a Python value"
        raise Unsuitable(f"a text that is not JSON: {error}", fix) from error


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")


def _array_converter(column: Column) -> Converter:
    element = converter(replace(column, type=column.data_type[:-2]))
    parses = element is to_json_text

    def to_array(value: object) -> str:
        if isinstance(value, JsonText):
            return _checked_json(value)
        if not isinstance(value, list | tuple | set | frozenset):
            raise _refuse(value, "an array", "give a list")
        items = [None if item is None else item if parses else _item(item) for item in value]
        return to_json_text(items)

    def _item(item: object) -> object:
        # An array of arrays has the same type name in Postgres, whatever its depth.
        return [None if i is None else _item(i) for i in item] if isinstance(item, list | tuple) else element(item)

    return to_array


def to_unsynced(value: object) -> object:
    """Columns that only travel: scalars as they are, bytes as hexadecimal text."""
    match value:
        case bytes() | bytearray() | memoryview():
            return "\\x" + bytes(value).hex()
        case str():
            return to_text(value)
        case bool():
            return value
        case int() | float():
            return to_number(value)
    raise _refuse(value, "a text, number, boolean or bytes", "convert it in the adapter, or leave the column out")


def _has_text_affinity(data_type: str) -> bool:
    name = data_type.lower()
    return "char" in name or "text" in name
