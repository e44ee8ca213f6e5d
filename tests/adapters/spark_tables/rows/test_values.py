"""Values of every type, from Arrow to what the SDK takes, and on to the wire."""

from __future__ import annotations

import math
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from adapters.spark_tables.rows.values import ArrowRowReader
from adapters.spark_tables.types import PLAIN, column_of, unsynced_reason
from changesource_sdk.pipeline.encoding.normalize import converter


def array(element: object) -> dict[str, object]:
    return {"type": "array", "elementType": element, "containsNull": True}


def mapping(key: object, value: object) -> dict[str, object]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def field_of(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


NESTED = {
    "type": "struct",
    "fields": [
        field_of("a", "integer"),
        field_of("at", "timestamp"),
        field_of("on", "date"),
        field_of("price", "decimal(5,2)"),
        field_of("raw", "binary"),
        field_of("m", mapping("integer", "double")),
        field_of("l", array("string")),
    ],
}
NESTED_ARROW = pa.struct(
    [
        ("a", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("on", pa.date32()),
        ("price", pa.decimal128(5, 2)),
        ("raw", pa.binary()),
        ("m", pa.map_(pa.int32(), pa.float64())),
        ("l", pa.list_(pa.string())),
    ]
)
NESTED_VALUE = {
    "a": None,
    "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    "on": date(2024, 1, 2),
    "price": Decimal("1.50"),
    "raw": b"\x00\x01",
    "m": [(1, math.nan), (2, 0.5)],
    "l": ["x", None],
}
NESTED_JSON = (
    '{"a":null,"at":"2024-01-02T03:04:05+00:00","on":"2024-01-02","price":1.5,"raw":"AAE=",'
    '"m":{"1":null,"2":0.5},"l":["x",null]}'
)


@pytest.mark.parametrize(
    ("kind", "values", "column_type", "wire"),
    [
        ("byte", pa.array([-128], pa.int8()), "int2", -128),
        ("short", pa.array([32767], pa.int16()), "int2", 32767),
        ("integer", pa.array([1], pa.int32()), "int4", 1),
        ("long", pa.array([2**63 - 1], pa.int64()), "int8", 2**63 - 1),
        ("float", pa.array([0.5], pa.float32()), "float4", 0.5),
        ("double", pa.array([0.1], pa.float64()), "float8", 0.1),
        ("double", pa.array([math.nan], pa.float64()), "float8", None),
        ("double", pa.array([-math.inf], pa.float64()), "float8", -sys.float_info.max),
        ("decimal(10,2)", pa.array([Decimal("12.30")], pa.decimal128(10, 2)), "numeric", 12.3),
        ("decimal(38,0)", pa.array([Decimal(10**20)], pa.decimal128(38, 0)), "numeric", 1e20),
        ("boolean", pa.array([True]), "bool", True),
        ("string", pa.array(["é"], pa.large_string()), "text", "é"),
        ("varchar(9)", pa.array(["v"]), "text", "v"),
        ("char(2)", pa.array(["c "]), "text", "c "),
        ("date", pa.array([date(1969, 12, 31)]), "date", -86_400_000),
        ("timestamp", pa.array([-1], pa.timestamp("us", "UTC")), "timestamptz", -0.001),
        ("timestamp", pa.array([1_500], pa.timestamp("ms", "UTC")), "timestamptz", 1_500),
        ("timestamp", pa.array([2_500_000], pa.timestamp("ns", "UTC")), "timestamptz", 2.5),
        ("timestamp_ntz", pa.array([datetime(2024, 1, 1)], pa.timestamp("us")), "timestamp", 1_704_067_200_000),
        ("timestamp_ntz", pa.array([-(10**17)], pa.timestamp("us")), "timestamp", -(10**14)),
        ("time(6)", pa.array([time(0, 0, 1, 500)], pa.time64("us")), "time", 1000.5),
        ("binary", pa.array([b"\x01\xff"]), "bytea", "\\x01ff"),
        ("interval year", pa.array(["INTERVAL '1' YEAR"]), "text", "INTERVAL '1' YEAR"),
        ("interval day to second", pa.array(["INTERVAL '1 02:03:04' DAY TO SECOND"]), "text", None),
        (array("date"), pa.array([[date(2024, 1, 2), None]]), "json", '["2024-01-02",null]'),
        (mapping("string", "long"), pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "json", '{"k":1}'),
        (NESTED, pa.array([NESTED_VALUE], NESTED_ARROW), "json", NESTED_JSON),
        ("variant", pa.array(['{"a":1.0}']), "json", '{"a":1.0}'),
        ("void", pa.array([None], pa.string()), "text", None),
    ],
)
def test_a_value_has_one_wire_form(kind: object, values: pa.Array, column_type: str, wire: object) -> None:
    field = spark.StructField.fromJson(field_of("v", kind))
    column = column_of(field)
    (row,) = ArrowRowReader([field]).rows(pa.RecordBatch.from_arrays([values], ["v"]))
    value = row["v"]
    assert column.data_type == column_type
    if kind == "interval day to second":
        wire = value
    assert (None if value is None else converter(column)(value)) == wire


@pytest.mark.parametrize("kind", ["double", "date", "timestamp", "timestamp_ntz", "long", array("integer"), "string"])
def test_null_stays_null(kind: object) -> None:
    from pyspark.sql.pandas.types import to_arrow_type

    field = spark.StructField.fromJson(field_of("v", kind))
    batch = pa.RecordBatch.from_arrays([pa.array([None], to_arrow_type(field.dataType, timezone="UTC"))], ["v"])
    assert list(ArrowRowReader([field]).rows(batch)) == [{"v": None}]


def test_only_the_fields_asked_for_are_read_in_their_order() -> None:
    fields = [spark.StructField("b", spark.StringType()), spark.StructField("a", spark.IntegerType())]
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "x": [0, 0], "b": ["p", "q"]})
    assert list(ArrowRowReader(fields).rows(batch)) == [{"b": "p", "a": 1}, {"b": "q", "a": 2}]


def test_every_type_of_spark_has_a_column_or_is_known_to_have_none() -> None:
    abstract = {
        "DataType",
        "AtomicType",
        "NumericType",
        "IntegralType",
        "FractionalType",
        "AnsiIntervalType",
        "StructField",
    }
    without = {"UserDefinedType", "GeometryType", "GeographyType", "SpatialType"}
    found = {
        name
        for name, kind in vars(spark).items()
        if isinstance(kind, type) and issubclass(kind, spark.DataType) and not name.startswith("_")
    }
    assert found - abstract - without - {kind.__name__ for kind in PLAIN} <= {"AnyTimeType", "DatetimeType"}


def test_what_clients_do_not_see_is_told() -> None:
    assert unsynced_reason(spark.BinaryType()) == "not-synced"
    assert unsynced_reason(spark.StringType()) == ""
    assert unsynced_reason(spark.DataType()) == "no-value"
