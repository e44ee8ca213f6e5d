"""Column data types: how zero-cache interprets a type name, and which JSON values fit it.

Type names are those of Postgres, compared without case and without a parenthesised argument. zero-cache does not check
values against the type; a value of the wrong kind is stored and surfaces much later as a broken query. `misfit` is
therefore the check that a source runs before it sends.
"""

import math
import re
from typing import Literal

from protocol.errors import CodecError
from protocol.values import loads

ZqlType = Literal["number", "string", "boolean", "json"]
"""What a client sees; a column of no ZQL type is replicated but not synced."""

ValueKind = Literal["integer", "number", "boolean", "string", "uuid", "json", "array", "unsynced"]
"""How a value travels: finer than `ZqlType` where the wire is."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
SAFE_INTEGER = 2**53 - 1
"""The largest integer that a client can read; larger ones are stored exactly but break the queries that read them."""

_INTEGERS = (
    *("smallint", "integer", "int", "bigint", "int2", "int4", "int8"),
    *("smallserial", "serial", "bigserial", "serial2", "serial4", "serial8"),
)
_NUMBERS = ("decimal", "numeric", "real", "double precision", "float", "float4", "float8")
_TIMES = (
    *("date", "time", "timetz", "time with time zone", "time without time zone"),
    *("timestamp", "timestamptz", "timestamp with time zone", "timestamp without time zone"),
)
_STRINGS = (
    *("text", "varchar", "character varying", "character", "bpchar"),
    *("inet", "cidr", "macaddr", "macaddr8", "pg_lsn"),
    *("isbn", "isbn13", "issn", "issn13", "ismn", "ismn13", "ean13", "upc"),
)

KINDS: dict[str, ValueKind] = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(_TIMES, "number"),
    **dict.fromkeys(_STRINGS, "string"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("json", "jsonb"), "json"),
    "uuid": "uuid",
}

_ZQL: dict[ValueKind, ZqlType] = {
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "string": "string",
    "uuid": "string",
    "json": "json",
    "array": "json",
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def value_kind(data_type: str, *, is_enum: bool = False, is_array: bool = False) -> ValueKind:
    """How values of a column with this type name travel; `unsynced` for a name that zero-cache does not know."""
    if is_array:
        return "array"
    name = data_type.lower().partition("(")[0]
    return KINDS.get(name, "string" if is_enum else "unsynced")


def zql_type(data_type: str, *, is_enum: bool = False, is_array: bool = False) -> ZqlType | None:
    """The type that clients see, or None if the column is replicated but not synced."""
    return _ZQL.get(value_kind(data_type, is_enum=is_enum, is_array=is_array))


def misfit(kind: ValueKind, value: object, *, json_mode: Literal["p", "s"] = "p") -> str | None:
    """Why a JSON value does not suit a column of this kind, or None if it does. Null suits every kind.

    In `json_mode` `s` a string in a JSON or array column is the text of its value, and must be that.
    """
    if value is None:
        return None
    if json_mode == "s" and isinstance(value, str) and kind in ("json", "array"):
        return _text_misfit(kind, value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN or Infinity"
    if kind != "json" and isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        return "an integer beyond 64 bits"
    return None if _suits(kind, value) else f"{_describe(value)} in {_WANTED[kind]} column"


_WANTED: dict[ValueKind, str] = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "string": "a text",
    "uuid": "a uuid",
    "json": "a JSON",
    "array": "an array",
    "unsynced": "an unsynced",
}


def _text_misfit(kind: ValueKind, text: str) -> str | None:
    try:
        parsed = loads(text)
    except CodecError:
        return f"a text that is not JSON in {_WANTED[kind]} column"
    return misfit(kind, parsed)


def _suits(kind: ValueKind, value: object) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool) or value in (0, 1)
        case "string":
            return isinstance(value, str)
        case "uuid":
            return isinstance(value, str) and _UUID.fullmatch(value) is not None
        case "array":
            return isinstance(value, list | tuple)
        case _:
            return True


def _describe(value: object) -> str:
    match value:
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a float"
        case str():
            return "a text"
        case dict():
            return "an object"
        case _:
            return "an array"
