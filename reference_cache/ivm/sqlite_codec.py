"""Between the engine's row tuples and what SQLite stores: booleans as 0/1, json as text, numbers checked.

Conversions are generated per table, so a table of strings costs nothing and any other only its own columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import orjson

from reference_cache.ivm.operator import Columns, Key
from reference_cache.query.schema import Row, TableSchema

LARGEST_INTEGER = 2**53 - 1

Convert = Callable[[Row], Row]


class StoredValueError(ValueError):
    """A stored value that the query language cannot represent; names table and column."""

    code = "bad-stored-value"


def decoder(table: TableSchema) -> Convert | None:
    """From a stored row to the engine's; None if they are the same."""
    environment: dict[str, Any] = {"parse": orjson.loads}
    parts: list[str] = []
    for place, (name, column) in enumerate(table.columns.items()):
        value = f"r[{place}]"
        if column.type == "boolean":
            parts.append(f"None if {value} is None else {value} != 0")
        elif column.type == "json":
            environment[f"json{place}"] = _json_reader(table.name, name)
            parts.append(f"None if {value} is None else json{place}({value})")
        elif column.type == "number":
            environment[f"number{place}"] = _number_check(table.name, name)
            in_range = f"-{LARGEST_INTEGER} <= {value} <= {LARGEST_INTEGER}"
            parts.append(f"{value} if {value} is None or {in_range} else number{place}({value})")
        else:
            parts.append(value)
    if len(environment) == 1 and all(column.type == "string" for column in table.columns.values()):
        return None
    return cast(Convert, eval(f"lambda r: ({', '.join(parts)},)", environment))


def _json_reader(table: str, column: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise StoredValueError(f"{table}.{column} holds text that is not JSON: {text!r} ({error})") from error

    return read


def _number_check(table: str, column: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if isinstance(value, float):
            return value
        raise StoredValueError(
            f"{table}.{column} holds {value!r}, which is outside the range of exact integers ±{LARGEST_INTEGER}"
        )

    return check


def encoder(table: TableSchema) -> Convert | None:
    """From the engine's row to what is stored; None if they are the same. Booleans arrive as 0/1 by themselves."""
    if all(column.type != "json" for column in table.columns.values()):
        return None
    parts = [
        f"None if r[{place}] is None else text(r[{place}])" if column.type == "json" else f"r[{place}]"
        for place, column in enumerate(table.columns.values())
    ]
    return cast(Convert, eval(f"lambda r: ({', '.join(parts)},)", {"text": json_text}))


def json_text(value: Any) -> str:
    """A json value as it is stored."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_KINDS: dict[str, tuple[type, ...]] = {"string": (str,), "number": (int, float)}


class KeyParameters:
    """A join key's values as statement parameters, or None if the columns cannot hold such values.

    Guards against SQLite's conversions: a string never matches a number column here.
    """

    __slots__ = ("_kinds",)

    def __init__(self, table: TableSchema, columns: Columns) -> None:
        self._kinds = [table.columns[column].type for column in columns]

    def __call__(self, key: Key) -> tuple[Any, ...] | None:
        parts = cast(Sequence[Any], (key,) if len(self._kinds) == 1 else key)
        values: list[Any] = []
        for part, kind in zip(parts, self._kinds, strict=True):
            if kind == "boolean":
                if not isinstance(part, tuple):
                    return None
                part = int(part[1])
            elif isinstance(part, tuple) or not isinstance(part, _KINDS[kind]):
                return None
            values.append(part)
        return tuple(values)
