"""Arrow columns to rows: values as the SDK takes them, column by column. Pure.

Conversion works on whole columns, since most of a snapshot's time passes here. Points in time become milliseconds by
arithmetic, so that no date is too early or too late for Python.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from changesource_sdk import JsonText, Row

LARGEST = sys.float_info.max
_DAY_MS = 86_400_000
_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
"""By what a count of the unit is multiplied, then divided, to be milliseconds."""

Values: TypeAlias = Sequence[object]
Reader: TypeAlias = Callable[[pa.Array], Values]


class ArrowRowReader:
    """Makes rows of record batches that have (at least) the fields of a shape."""

    def __init__(self, fields: Sequence[spark.StructField]) -> None:
        self._names = [field.name for field in fields]
        self._readers = [_reader(field.dataType) for field in fields]

    def rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """The rows, in their order."""
        pairs = zip(self._names, self._readers, strict=True)
        columns = [read(batch.column(name)) for name, read in pairs]
        return (dict(zip(self._names, values, strict=True)) for values in zip(*columns, strict=True))


def _reader(kind: spark.DataType) -> Reader:
    match kind:
        case spark.FloatType() | spark.DoubleType():
            return _floats
        case spark.DateType():
            return _days
        case spark.TimestampType() | spark.TimestampNTZType() | spark.TimeType():
            return _moments
        case spark.StructType() | spark.ArrayType() | spark.MapType():
            return lambda column: [None if v is None else _document(v, kind) for v in column.to_pylist()]
        case spark.VariantType():
            return lambda column: [None if v is None else JsonText(v) for v in column.to_pylist()]
    return lambda column: column.to_pylist()


def _floats(column: pa.Array) -> Values:
    if pc.all(pc.is_finite(column), min_count=0).as_py():
        return list(column.to_pylist())
    return [None if v is None else _finite(v) for v in column.to_pylist()]


def _finite(value: float) -> float | None:
    """NaN has no counterpart, and infinity is the largest number, so that comparisons still hold."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else math.copysign(LARGEST, value)


def _days(column: pa.Array) -> Values:
    days = column.cast(pa.date32()).cast(pa.int32()).to_pylist()
    return [None if day is None else day * _DAY_MS for day in days]


def _moments(column: pa.Array) -> Values:
    """Timestamps and times of day, counted in the unit their type says."""
    times, by = _PER_MS[column.type.unit]
    counts = column.cast(pa.int32() if pa.types.is_time32(column.type) else pa.int64()).to_pylist()
    return [None if n is None else _milliseconds(n * times, by) for n in counts]


def _milliseconds(count: int, by: int) -> int | float:
    # A double cannot hold today's milliseconds with a finer fraction than microseconds.
    whole, rest = divmod(count, by)
    return whole if rest == 0 else (count // (by // 1000)) / 1000


def _document(value: object, kind: spark.DataType) -> JsonText:
    return JsonText(json.dumps(_plain(value, kind), ensure_ascii=False, separators=(",", ":")))


def _plain(value: object, kind: spark.DataType) -> object:
    """A nested value as JSON has it."""
    match kind, value:
        case _, None:
            return None
        case spark.StructType(), Mapping():
            return {field.name: _plain(value.get(field.name), field.dataType) for field in kind.fields}
        case spark.ArrayType(), list():
            return [_plain(item, kind.elementType) for item in value]
        case spark.MapType(), list():
            return {_key(k, kind.keyType): _plain(v, kind.valueType) for k, v in value}
        case spark.MapType(), Mapping():
            return {_key(k, kind.keyType): _plain(v, kind.valueType) for k, v in value.items()}
    return _scalar(value)


def _key(value: object, kind: spark.DataType) -> str:
    plain = _plain(value, kind)
    return plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"))


def _scalar(value: object) -> object:
    match value:
        case float():
            return _finite(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode("ascii")
    return value
