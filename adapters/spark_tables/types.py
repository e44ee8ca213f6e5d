"""Spark's types: the column that consumers get for each, and how values leave Spark (`values` takes them from there).

| Spark | column | travels as |
|---|---|---|
| byte, short, int, long | int2, int2, int4, int8 | integer |
| float, double | float4, float8 | number; NaN is null, infinity the largest number of its sign |
| decimal | numeric | number; digits beyond a double's are lost |
| boolean; string, char, varchar | bool; text | boolean; string |
| date; timestamp; timestamp_ntz; time | date; timestamptz; timestamp; time | milliseconds (with a fraction) |
| struct, array, map, variant | json | JSON as Spark's `to_json` has it: dates and times in ISO 8601, bytes in base64 |
| intervals | text | Spark's spelling |
| binary | bytea | hexadecimal text; not synced to clients |
| any other | none | the column is left out, and reported |

The same value gives the same wire form whether it comes from a snapshot, a change feed or a difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from changesource_sdk import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLAIN: Mapping[type[spark.DataType], str] = {
    spark.ByteType: "int2",
    spark.ShortType: "int2",
    spark.IntegerType: "int4",
    spark.LongType: "int8",
    spark.FloatType: "float4",
    spark.DoubleType: "float8",
    spark.DecimalType: "numeric",
    spark.BooleanType: "bool",
    spark.StringType: "text",
    spark.CharType: "text",
    spark.VarcharType: "text",
    spark.NullType: "text",
    spark.DateType: "date",
    spark.TimestampType: "timestamptz",
    spark.TimestampNTZType: "timestamp",
    spark.TimeType: "time",
    spark.StructType: "json",
    spark.ArrayType: "json",
    spark.MapType: "json",
    spark.VariantType: "json",
    spark.BinaryType: "bytea",
    spark.YearMonthIntervalType: "text",
    spark.DayTimeIntervalType: "text",
    spark.CalendarIntervalType: "text",
}
"""The column type that stands for each type of Spark."""

AS_TEXT = (spark.YearMonthIntervalType, spark.DayTimeIntervalType, spark.CalendarIntervalType, spark.NullType)
"""Types that Arrow or Parquet would not keep: Spark spells them before they leave it."""


def column_of(field: spark.StructField) -> Column:
    """The column that consumers get for a field that travels."""
    return Column(field.name, PLAIN[type(field.dataType)], optional=field.nullable)


def unsynced_reason(kind: spark.DataType) -> str:
    """Why clients do not see a column: "no-value", it is left out; "not-synced", it is only replicated; else ""."""
    data_type = PLAIN.get(type(kind))
    return "no-value" if data_type is None else "not-synced" if data_type == "bytea" else ""


def travelling(frame: DataFrame) -> DataFrame:
    """The columns of a frame that travel, in types that Arrow and Parquet keep."""
    from pyspark.sql import functions

    columns = []
    for field in frame.schema.fields:
        column = frame[f"`{field.name.replace('`', '``')}`"]
        if isinstance(field.dataType, AS_TEXT):
            columns.append(column.cast("string").alias(field.name))
        elif isinstance(field.dataType, spark.VariantType):
            columns.append(functions.to_json(column).alias(field.name))
        elif unsynced_reason(field.dataType) != "no-value":
            columns.append(column)
    return frame.select(*columns)
