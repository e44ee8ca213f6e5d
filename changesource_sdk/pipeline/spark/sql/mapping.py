"""Spark SQL in mappings: the columns that expressions read, their results, and errors with the expression's key.

Expressions read the upstream's columns in Spark's types. The values come from the converters that also encode them for
consumers (`encoding.normalize`), so a value is the same in a snapshot and in a change. Results go into the rows' slots
(`mapping.row.sql_slot`); `mapping.row` does the rest of the mapping. An expression reads one row: aggregates, windows,
generators and random numbers are refused, because a snapshot and a change would have different results.

| column | in SQL |
|---|---|
| integer, boolean, date, timestamp | bigint, boolean, date, timestamp (the session's zone is UTC) |
| float, numeric, time | double (a time in milliseconds) |
| text, enum, uuid, json, arrays, others | string (json and arrays as JSON text) |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from changesource_sdk.adapter import Row
from changesource_sdk.errors import ChangesourceError, InvalidChange
from changesource_sdk.pipeline.encoding.normalize import Converter, Unsuitable, converter
from changesource_sdk.pipeline.mapping.declare import wrong
from changesource_sdk.pipeline.mapping.row import sql_slot
from changesource_sdk.pipeline.mapping.table import MappedTable
from changesource_sdk.schema import Column, JsonText, Table

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

ROW = "_changesource_row"
"""The column with the pickled row; the other columns are the inputs of its expressions."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Values = tuple[object, ...]
Restore = Callable[[object], object]


class SqlInputs:
    """Converts rows of a table to values of Spark's types; picklable."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._columns = [(column, converter(column)) for column in table.columns]

    def __reduce__(self) -> tuple[type[SqlInputs], tuple[Table]]:
        return SqlInputs, (self.table,)

    def values(self, row: Row) -> Values:
        """Return one value per column, None where the row has none; raises `InvalidChange` for an unsuitable value."""
        return tuple(self._value(column, convert, row.get(column.name)) for column, convert in self._columns)

    def _value(self, column: Column, convert: Converter, value: object) -> object:
        if value is None:
            return None
        try:
            return _spark_value(column, convert(value))
        except (Unsuitable, OverflowError) as error:
            reason, fix = error.args if isinstance(error, Unsuitable) else (str(error), "correct the value")
            where = f"table {self.table.full_name}, column {column.name} ({column.data_type})"
            raise InvalidChange("value-does-not-fit", str(reason), where, str(fix)) from error

    def schema(self) -> StructType:
        """Return the columns in Spark's types."""
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(column.name, _spark_type(column)) for column in self.table.columns])


def _temporal(column: Column) -> str:
    """Return `timestamp`, `date` or "" for a column of another type."""
    name = column.data_type.lower()
    if column.kind != "number":
        return ""
    return "timestamp" if name.startswith("timestamp") else "date" if name.startswith("date") else ""


def _spark_type(column: Column) -> DataType:
    from pyspark.sql import types

    if column.is_array:
        return types.StringType()
    match _temporal(column) or column.kind:
        case "timestamp":
            return types.TimestampType()
        case "date":
            return types.DateType()
        case "integer":
            return types.LongType()
        case "number":
            return types.DoubleType()
        case "boolean":
            return types.BooleanType()
    return types.StringType()


def _spark_value(column: Column, wire: object) -> object:
    """Convert a value from its encoding for consumers to the column's type in Spark."""
    kind = _temporal(column) or column.kind
    if kind in ("timestamp", "date") and isinstance(wire, int | float):
        moment = _EPOCH + timedelta(milliseconds=wire)
        return moment if kind == "timestamp" else date(moment.year, moment.month, moment.day)
    if kind == "number" and isinstance(wire, int | float):
        return float(wire)
    return wire if kind in ("integer", "boolean") or isinstance(wire, str) else str(wire)


@dataclass(frozen=True, slots=True)
class SlotReader:
    """Reads the results of a table's expressions back into the slots of its rows; picklable."""

    slots: tuple[tuple[str, str], ...]

    def read(self, results: Sequence[object]) -> dict[str, object]:
        """Return the results by slot; `results` are in the order of the expressions."""
        pairs = zip(self.slots, results, strict=True)
        return {slot: _RESTORE[kind](value) for (slot, kind), value in pairs}


def check_sql(session: SparkSession, table: MappedTable) -> tuple[list[SparkColumn], SlotReader]:
    """Return a table's expressions as columns to select, and the reader of their results.

    Spark analyses them here; raises `ConfigurationError` with the key of the first that it refuses.
    """
    empty = session.createDataFrame([], SqlInputs(table.source).schema())
    checked = [(sql_slot(key), *_checked(empty, table, key, sql)) for key, sql in table.mapping.sql.items()]
    columns = [column.alias(f"_{number}") for number, (_, column, _) in enumerate(checked)]
    return columns, SlotReader(tuple((slot, kind) for slot, _, kind in checked))


def _checked(empty: DataFrame, table: MappedTable, key: str, sql: str) -> tuple[SparkColumn, str]:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions
    from pyspark.sql.types import BooleanType

    where = _where(table, key)
    fix = "correct the SQL; it may use the columns " + ", ".join(table.source.column_names)
    try:
        expression = functions.expr(sql)
        # Spark allows no aggregate, window or generator in a WHERE, so it refuses them here.
        empty.where(expression.isNull())
        result = empty.select(expression)
    except PySparkException as error:
        raise wrong(where, gist(str(error)), fix) from error
    if not result._jdf.queryExecution().analyzed().deterministic():
        raise wrong(where, "the expression gives another result each time", "use only columns and constants")
    kind = result.schema[0].dataType
    if key == "filter" and not isinstance(kind, BooleanType):
        raise wrong(where, f"a filter must be true or false, this is {kind.simpleString()}", "compare with something")
    return _transportable(expression, kind)


def _where(table: MappedTable, key: str) -> str:
    column = key.removeprefix("columns.")
    named = f", column {column}" if column != key else ""
    return f"{table.key}.{key}, table {table.source.full_name}{named}"


def _transportable(expression: SparkColumn, kind: DataType) -> tuple[SparkColumn, str]:
    """Return the expression in a form that reaches Python without loss, and its key in `_RESTORE`."""
    from pyspark.sql import functions, types

    if isinstance(kind, types.TimestampType):
        return functions.unix_micros(expression), "microseconds"
    if isinstance(kind, types.ArrayType | types.MapType | types.StructType):
        return functions.to_json(expression), "json"
    return expression, "plain"


def _milliseconds(value: object) -> object:
    if not isinstance(value, int):
        return value
    return value // 1000 if value % 1000 == 0 else value / 1000


def _json(value: object) -> object:
    return None if value is None else JsonText(value)


_RESTORE: Mapping[str, Restore] = {"plain": lambda value: value, "microseconds": _milliseconds, "json": _json}


def explained(error: BaseException, tables: Iterable[MappedTable]) -> ChangesourceError | None:
    """Return the error for an expression that failed on a row, with its key; None if Spark failed otherwise."""
    text = str(error)
    if "SQLSTATE" not in text:
        return None
    by_where = {_where(table, key): sql for table in tables for key, sql in table.mapping.sql.items()}
    if not by_where:
        return None
    # Spark quotes the expression that failed; where it does not, any of them may be the cause.
    named = [where for where, sql in by_where.items() if sql in text] or list(by_where)
    return InvalidChange(
        "mapping-failed",
        gist(text),
        where="; ".join(named),
        fix="make the SQL work for every row, for example with try_cast, try_divide or coalesce",
    )


def gist(text: str) -> str:
    """Return the part of a Spark error from its condition's name to its SQLSTATE, at most 500 characters.

    The rest is a query plan and a Java stack trace.
    """
    match = re.search(r"\[[A-Z_.]+\].*?SQLSTATE: \w+", text, re.DOTALL)
    return " ".join((match.group() if match else text).split())[:500]
