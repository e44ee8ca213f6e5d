"""SQLite's declared types, and the values that are stored under them.

The declared type decides the data type that consumers see. SQLite itself accepts any value in almost any column, so
`CONVERSIONS` lists which stored values fit which type. `rows` applies it to whole rows.

Types by declared name: `BOOL…` bool · `JSON…` json · `DATE… TIME…` as the `dates` setting says · then SQLite's own
rules: `…INT…` int8 · `…CHAR… …CLOB… …TEXT…` text · `…REAL… …FLOA… …DOUB…` float8 · numeric names numeric ·
`…BLOB…`, `ANY` or nothing bytea, which is replicated but not synced to clients · any other name text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from changesource_sdk import JsonText

Dates: TypeAlias = Literal["text", "number"]
Stored: TypeAlias = int | float | str | bytes | None
Convert: TypeAlias = Callable[[Stored], object]

UNSYNCED = "bytea"
NUMERIC_NAMES = ("NUMERIC", "DECIMAL", "DEC", "NUMBER", "MONEY", "CURRENCY", "FIXED")


def data_type(declared: str, dates: Dates = "text") -> str:
    """The data type that consumers see for a declared type."""
    name = declared.upper().partition("(")[0].strip()
    if name.startswith("BOOL"):
        return "bool"
    if name.startswith("JSON"):
        return "json"
    if name.startswith(("DATE", "TIME")):
        return "text" if dates == "text" else "float8"
    return _by_affinity(name)


def _by_affinity(name: str) -> str:
    if "INT" in name and name != "INTERVAL":
        return "int8"
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if name in ("", "ANY") or "BLOB" in name:
        return UNSYNCED
    if any(part in name for part in ("REAL", "FLOA", "DOUB")):
        return "float8"
    return "numeric" if name.startswith(NUMERIC_NAMES) else "text"


def _as_bool(value: Stored) -> bool:
    if value == 0 or value == 1:
        return value == 1
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"{value!r} is neither true nor false")


def _json_number(value: Stored) -> JsonText:
    return JsonText(repr(value))


CONVERSIONS: dict[tuple[str, type], Convert | None] = {
    ("int8", int): None,
    ("float8", float): None,
    ("float8", int): None,
    ("numeric", int): None,
    ("numeric", float): None,
    ("bool", int): _as_bool,
    ("bool", float): _as_bool,
    ("bool", str): _as_bool,
    ("text", str): None,
    ("text", int): repr,
    ("text", float): repr,
    ("json", str): JsonText,
    ("json", int): _json_number,
    ("json", float): _json_number,
    (UNSYNCED, bytes): None,
    (UNSYNCED, str): None,
    (UNSYNCED, int): None,
    (UNSYNCED, float): None,
}
"""How to convert a stored value, by data type and Python type. None: no conversion; absent: the value is refused."""
