"""Rows to JSON: the innermost loop of the pipeline, compiled per set of columns.

Most rows of a table have values of the same Python types, row after row, and most of those need no conversion. So a
`RowShape` decides once per distinct tuple of value types what must be done (its `_Plan`), and then does only that: a
range check for integers, a finiteness check for floats, a call for each value that needs converting. A row that fails
one of these goes through the converters value by value, so that the error names the column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import orjson

from changesource_sdk.errors import InvalidChange
from changesource_sdk.pipeline.encoding.normalize import Converter, Unsuitable, converter, to_text
from changesource_sdk.schema import Column
from protocol.data_types import INT64_MAX

Values = tuple[object, ...]
_Getter = Callable[[Mapping[str, object]], Values]


class _Plan(NamedTuple):
    """What values of one tuple of types need: positions to range-check, to check for NaN, and to convert."""

    integers: tuple[int, ...]
    floats: tuple[int, ...]
    converted: tuple[tuple[int, Converter], ...]


def kept_json(value: object) -> bytes:
    """The JSON of a value that is kept in memory; values that JSON does not have are written as their text.

    orjson returns the buffer it wrote into, at least 4 KB, however short the text. That costs nothing for what is
    written or sent at once; as a key among a million others it costs a hundred times the key. So the text is copied.
    """
    return bytes(memoryview(orjson.dumps(value, default=str)))


class RowShape:
    """Turns mappings with exactly these columns into JSON objects; every value is checked, none is changed silently."""

    def __init__(self, table: str, columns: Sequence[Column]) -> None:
        self._table = table
        self._columns = tuple(columns)
        self.names = tuple(column.name for column in columns)
        self._get = _getter(self.names)
        self._converters = tuple(converter(column) for column in columns)
        # By the types of the values; `_new_plan` adds one for each tuple that occurs.
        self._plans: dict[tuple[type, ...], _Plan] = {}

    def to_json(self, row: Mapping[str, object]) -> bytes:
        """The JSON object of a row that has these columns and no other."""
        values = self._get(row)
        types = tuple(map(type, values))
        plan = self._plans.get(types) or self._new_plan(types)
        for index in plan.integers:
            if values[index] > INT64_MAX:  # type: ignore[operator]
                return self._slow(values)
        for index in plan.floats:
            if not math.isfinite(values[index]):  # type: ignore[arg-type]
                return self._slow(values)
        try:
            if not plan.converted:
                return orjson.dumps(row if type(row) is dict else dict(zip(self.names, values, strict=True)))
            work = list(values)
            for index, convert in plan.converted:
                work[index] = convert(work[index])
            return orjson.dumps(dict(zip(self.names, work, strict=True)))
        except (Unsuitable, TypeError):
            return self._slow(values)

    def _slow(self, values: Values) -> bytes:
        """Convert value by value, so that an error names its column."""
        converted = map(self._convert, self._columns, self._converters, values)
        return orjson.dumps(dict(zip(self.names, converted, strict=True)))

    def _convert(self, column: Column, convert: Converter, value: object) -> object:
        try:
            if value is not None:
                return convert(value)
            return None if column.optional else _refuse_null(value)
        except Unsuitable as error:
            where = f"table {self._table}, column {column.name} ({column.data_type})"
            raise InvalidChange("value-does-not-fit", error.reason, where, error.fix, column.name) from error

    def _new_plan(self, types: tuple[type, ...]) -> _Plan:
        integers: list[int] = []
        floats: list[int] = []
        converted: list[tuple[int, Converter]] = []
        for index, (column, convert, kind) in enumerate(zip(self._columns, self._converters, types, strict=True)):
            match _treatment(column, convert, kind):
                case "integer":
                    integers.append(index)
                case "float":
                    floats.append(index)
                case "convert":
                    converted.append((index, convert))
                case "refuse":
                    converted.append((index, _refuse_null))
        self._plans[types] = plan = _Plan(tuple(integers), tuple(floats), tuple(converted))
        return plan


def _treatment(column: Column, convert: Converter, kind: type) -> str:
    """What a value of exactly this Python type needs in this column."""
    wanted = column.kind
    if kind is type(None):
        return "pass" if column.optional else "refuse"
    if kind is int and wanted in ("integer", "number"):
        return "integer"
    if kind is float and wanted == "number":
        return "float"
    if kind is bool and wanted == "boolean":
        return "pass"
    return "pass" if kind is str and convert is to_text else "convert"


def _refuse_null(value: object) -> object:
    raise Unsuitable("null in a column that is not optional", "give a value, or declare the column optional")


def _getter(names: tuple[str, ...]) -> _Getter:
    if len(names) > 1:
        getter: _Getter = itemgetter(*names)
        return getter
    # itemgetter wants a name, and gives no tuple for a single one.
    return lambda row: tuple(row[name] for name in names)
