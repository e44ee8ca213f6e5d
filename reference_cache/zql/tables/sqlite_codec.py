"""Converts between the engine's row tuples and what SQLite stores: booleans as 0/1, json as text, numbers checked.

A converter is generated for each table, so that a row costs only what its columns need. Queries hold rows for a long
time, and many rows have equal texts (owners, states, the version of a load): a decoder returns one object for equal
short texts, which saves memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, cast

import orjson

from reference_cache.zql.ivm.operator import Columns, Key
from reference_cache.zql.schema import Row, TableSchema

LARGEST_INTEGER = 2**53 - 1
"""JavaScript clients represent no larger integer exactly."""

SHORT = 64
"""Characters up to which a text is worth remembering: it is likely to occur again."""

MOST_TEXTS = 1024
"""Texts that a decoder remembers."""

Convert = Callable[[Row], Row]


class StoredValueError(ValueError):
    """A stored value that the query language cannot represent; names table and column."""

    code = "bad-stored-value"


class _Texts(dict[str, str]):
    """Interned texts: `texts[text]` returns an equal text seen before, or remembers this one."""

    __slots__ = ()

    def __missing__(self, text: str) -> str:
        if len(self) >= MOST_TEXTS:
            self.clear()
        self[text] = text
        return text


def decoder(table: TableSchema) -> Convert | None:
    """Returns the function from a stored row to the engine's row; None if the rows are the same.

    It raises `StoredValueError` for text that is not JSON and integers that are not exact in JavaScript.
    """
    environment: dict[str, Any] = {"texts": _Texts()}
    parts: list[str] = []
    for index, (name, column) in enumerate(table.columns.items()):
        value = f"r[{index}]"
        if column.type == "boolean":
            parts.append(f"None if {value} is None else {value} != 0")
        elif column.type == "json":
            environment[f"json{index}"] = _json_reader(table.name, name)
            parts.append(f"None if {value} is None else json{index}({value})")
        elif column.type == "number":
            environment[f"number{index}"] = _number_check(table.name, name)
            in_range = f"-{LARGEST_INTEGER} <= {value} <= {LARGEST_INTEGER}"
            parts.append(f"{value} if {value} is None or {in_range} else number{index}({value})")
        elif (name,) not in table.keys:
            parts.append(f"texts[{value}] if {value} is not None and len({value}) <= {SHORT} else {value}")
        else:
            parts.append(value)
    if parts == [f"r[{index}]" for index in range(len(parts))]:
        return None
    return _converter(parts, environment)


def _converter(parts: list[str], environment: dict[str, Any]) -> Convert:
    """The function that makes a row of these expressions over the row `r`."""
    return cast(Convert, eval(_code(f"lambda r: ({', '.join(parts)},)"), environment))


@lru_cache(maxsize=1024)
def _code(text: str) -> CodeType:
    # Readers of the change log need a table's decoder in every step, so it is compiled once.
    return compile(text, "<generated conversion>", "eval")


def _json_reader(table: str, column: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            # Short texts are often the same ("[]", a few flags): values are never modified, so rows can share them.
            return _short_json(text) if len(text) <= SHORT else orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise StoredValueError(f"{table}.{column} holds text that is not JSON: {text!r} ({error})") from error

    return read


@lru_cache(maxsize=4096)
def _short_json(text: str) -> Any:
    return orjson.loads(text)


def _number_check(table: str, column: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if isinstance(value, float):
            return value
        raise StoredValueError(
            f"{table}.{column} holds {value!r}, which is outside the range of exact integers ±{LARGEST_INTEGER}"
        )

    return check


def json_text(value: Any) -> str:
    """A json value as it is stored."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


Parameters = Callable[[Key], tuple[Any, ...] | None]


def key_parameters(table: TableSchema, columns: Columns) -> Parameters:
    """Returns a function from a join key to statement parameters, or to None if the columns never have such values.

    SQLite would convert types when it compares ('1' equals 1 in a number column); the query language does not.
    """
    kinds = [table.columns[column].type for column in columns]
    if kinds == ["string"]:
        return lambda key: (key,) if isinstance(key, str) else None
    if kinds == ["number"]:
        return lambda key: (key,) if isinstance(key, int | float) else None

    def parameters(key: Key) -> tuple[Any, ...] | None:
        parts = cast(Sequence[Any], (key,) if len(kinds) == 1 else key)
        values = [_parameter(part, kind) for part, kind in zip(parts, kinds, strict=True)]
        return None if None in values else tuple(values)

    return parameters


def _parameter(part: Any, kind: str) -> Any:
    """One value of a key as a parameter; None if a column of this kind never holds it."""
    if kind == "boolean":
        return int(part[1]) if isinstance(part, tuple) else None
    return part if isinstance(part, str if kind == "string" else int | float) else None
