"""Rows made from declared columns: any number of distinct ones, and those that show what a column can hold.

Values are plain Python values of the kind that `pipeline.encoding.normalize` accepts for the column. A type that is not
known here gets null; a harness whose store wants something else gives its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from uuid import UUID

from changesource_sdk.adapter import Column, Row, Table
from changesource_sdk.errors import ConfigurationError
from protocol.data_types import ValueKind

MakeRow = Callable[[Table, int, int], Row]

_START = datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC)
_SMALL = {"int2": 2**15 - 1, "smallint": 2**15 - 1, "int4": 2**31 - 1, "integer": 2**31 - 1, "int": 2**31 - 1}
_SAFE_INTEGER = 2**53 - 1

TEXTS = (
    "",
    " leading and trailing ",
    'it\'s "quoted" \\ and; -- not SQL',
    "two\nlines\tand a tab",
    "é ü 中文 🙂 \u202e",
    "0012",
    "null",
    "x" * 5000,
)
DOCUMENTS: tuple[object, ...] = ({}, [], {"a": {"b": [1, 2.5, None, True, "é"]}}, ["x", {"y": []}], "text", 7, False)


def row(table: Table, number: int, version: int) -> dict[str, object]:
    """Row `number` in one of its versions: key columns depend on the number, the others on both; some are null."""
    made: dict[str, object] = {}
    for index, column in enumerate(table.columns):
        if column.name in table.key:
            made[column.name] = _value(table, column, number)
        elif column.optional and (number + version + index) % 5 == 4 and version % 2:
            made[column.name] = None
        else:
            made[column.name] = _value(table, column, number * 1000 + version)
    return made


def samples(table: Table, make: MakeRow) -> list[Row]:
    """Rows that between them hold every sample of every column, and one of nulls."""
    values = {column.name: _samples(column) for column in table.columns if column.name not in table.key}
    rows: list[Row] = []
    for number in range(max((len(some) for some in values.values()), default=1)):
        base = make(table, number, 0)
        varied = {name: some[number % len(some)] for name, some in values.items() if some and name in base}
        rows.append({**base, **varied})
    last = make(table, len(rows), 0)
    optional = [c.name for c in table.columns if c.optional and c.name not in table.key and c.name in last]
    return [*rows, {**last, **dict.fromkeys(optional)}]


def _value(table: Table, column: Column, number: int) -> object:
    made = _made(column, number)
    if made is None and not column.optional:
        raise ConfigurationError(
            "no-sample",
            f"the suite cannot make a value of type {column.data_type}",
            where=f"table {table.full_name}, column {column.name}",
            fix="override row() in the harness and give one",
        )
    return made


def _made(column: Column, number: int) -> object:
    """A value of the column's type for each number; None if the type is not known or has too few values."""
    name = column.data_type.lower().partition("(")[0]
    if column.is_array or column.enum or (column.max_length is not None and column.max_length < 12):
        return None
    match _kind(column):
        case "integer":
            return number % _SMALL.get(name, _SAFE_INTEGER)
        case "boolean":
            return number % 2 == 0
        case "string":
            return f"row {number}" if "char" in name or name == "text" else None
        case "uuid":
            return UUID(int=number)
        case "json":
            return {"number": number, "odd": [number % 2 == 1]}
        case "number":
            return _number(name, number)
        case _:
            return number.to_bytes(8, "big") if name == "bytea" else None


@lru_cache(512)
def _kind(column: Column) -> ValueKind:
    return column.kind


def _number(name: str, number: int) -> object:
    if name.startswith("timestamp"):
        moment = _START + timedelta(seconds=number)
        return moment if "tz" in name or "with time" in name else moment.replace(tzinfo=None)
    if name == "date":
        return date(2024, 2, 29) + timedelta(days=number % 10_000)
    if name in ("time", "time without time zone"):
        return (datetime(2024, 1, 1) + timedelta(seconds=number % 86_400)).time()
    if name in ("numeric", "decimal"):
        return Decimal(number) / 4
    return None if name.startswith("time") else number / 4


def _samples(column: Column) -> Sequence[object]:
    """Values at the edges of the column's type, those that every store of such a column can be expected to hold."""
    name = column.data_type.lower().partition("(")[0]
    if _made(column, 1) is None:
        return ()
    match column.kind:
        case "integer":
            largest = _SMALL.get(name, _SAFE_INTEGER)
            return (0, 1, -1, largest, -largest)
        case "boolean":
            return (True, False)
        case "string":
            return TEXTS if column.max_length is None else tuple(t for t in TEXTS if len(t) <= (column.max_length or 0))
        case "uuid":
            return (UUID(int=0), UUID(int=2**128 - 1))
        case "json":
            return DOCUMENTS
        case "number":
            return _number_samples(name)
        case _:
            return (b"", b"\x00\xff")


def _number_samples(name: str) -> Sequence[object]:
    if name.startswith("timestamp"):
        zone = UTC if "tz" in name or "with time" in name else None
        return (
            datetime(1970, 1, 1, tzinfo=zone),
            datetime(1969, 12, 31, 23, 59, 59, tzinfo=zone),
            _START.replace(tzinfo=zone),
        )
    if name == "date":
        return (date(1970, 1, 1), date(1900, 3, 1), date(2100, 2, 28))
    if name.startswith("time"):
        return (time(0, 0), time(23, 59, 59))
    if name in ("numeric", "decimal"):
        return (Decimal(0), Decimal("-12.5"), Decimal("123456.25"))
    return (0.0, -1.5, 0.25, 1e15) if name not in ("real", "float4") else (0.0, -1.5, 0.25)
