"""Shapes of tables, and the schema changes between two of them."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from adapters.spark_tables.rows.shape import IDENTITY, Evolution, Shape, evolution
from changesource_sdk.adapter import AddColumn, AlterColumn, Column, CreateTable, DropColumn, DropTable
from changesource_sdk.errors import ConfigurationError

KINDS = {
    "BIGINT": LongType(),
    "INT": IntegerType(),
    "TINYINT": ByteType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "ARRAY<STRING>": ArrayType(StringType()),
    "STRUCT<a: INT>": StructType([StructField("a", IntegerType())]),
}


def _field(name: str, kind: str) -> StructField:
    return StructField(name, KINDS[kind.removesuffix(" NOT NULL")], not kind.endswith("NOT NULL"))


def shape(ddl: str, key: tuple[str, ...] = ("id",), stored: dict[str, str] | None = None) -> Shape:
    """A shape; `stored` gives columns the names that column mapping keeps them under."""
    struct = StructType([_field(*word.split(maxsplit=1)) for word in ddl.split(", ")])
    for field in struct.fields:
        if stored is not None:
            field.metadata = {IDENTITY: stored.get(field.name, field.name)}
    return Shape("t", struct, key)


def test_a_table_is_declared_with_its_types_key_and_nulls() -> None:
    table = shape("id BIGINT, name STRING NOT NULL, age INT").table
    assert table.columns == (
        Column("id", "int8", optional=False),
        Column("name", "text", optional=False),
        Column("age", "int4"),
    )
    assert table.key == ("id",)


def test_a_shape_survives_being_written_down() -> None:
    one = shape("id BIGINT, tags ARRAY<STRING>, at TIMESTAMP_NTZ", stored={"id": "c1"})
    assert Shape.from_json(one.to_json()) == one


@pytest.mark.parametrize(("key", "said"), [("idd", "no column 'idd'"), ("tags", "array<string>")])
def test_a_key_that_cannot_be_one_is_refused(key: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        shape("id BIGINT, tags ARRAY<STRING>", key=(key,))
    assert said in raised.value.message
    assert raised.value.where == "tables.t.key"
    assert raised.value.fix


def test_nothing_leads_from_a_shape_to_itself() -> None:
    assert not evolution(shape("id BIGINT, a INT"), shape("id BIGINT, a INT")).changes


def test_columns_come_and_go() -> None:
    found = evolution(shape("id BIGINT, a INT"), shape("id BIGINT, b STRING"))
    assert [*found.changes] == [DropColumn("t", "a"), AddColumn("t", Column("b", "text"))]
    assert not found.rewritten


def test_with_column_mapping_a_rename_is_a_rename() -> None:
    old, new = shape("id BIGINT, a INT", stored={}), shape("id BIGINT, b INT", stored={"b": "a"})
    assert [*evolution(old, new).changes] == [AlterColumn("t", "a", Column("b", "int4"))]


def test_a_table_that_was_made_anew_has_its_columns_by_their_names() -> None:
    old, new = (shape("id BIGINT, a INT", stored={"id": f"{x}1", "a": f"{x}2"}) for x in "ab")
    assert evolution(old, new).emptied
    assert evolution(old.by_name(), new.by_name()) == Evolution()


def test_names_may_be_swapped() -> None:
    old = shape("id BIGINT, a INT, b INT", stored={})
    new = shape("id BIGINT, a INT, b INT", stored={"a": "b", "b": "a"})
    assert len([change for change in evolution(old, new).changes if isinstance(change, AlterColumn)]) == 3


@pytest.mark.parametrize(
    ("old", "new", "rewritten"),
    [
        ("INT", "BIGINT", False),
        ("TINYINT", "INT", False),
        ("FLOAT", "DOUBLE", False),
        ("INT", "STRING", True),
        ("STRING", "STRUCT<a: INT>", True),
    ],
)
def test_a_wider_type_keeps_the_rows_and_another_one_rewrites_them(old: str, new: str, rewritten: bool) -> None:
    found = evolution(shape(f"id BIGINT, a {old}"), shape(f"id BIGINT, a {new}"))
    assert [type(change) for change in found.changes] == [AlterColumn]
    assert found.rewritten is rewritten


def test_a_change_of_nullability_is_told_and_rewrites_nothing() -> None:
    found = evolution(shape("id BIGINT, a INT NOT NULL"), shape("id BIGINT, a INT"))
    assert [*found.changes] == [AlterColumn("t", "a", Column("a", "int4"))]
    assert not found.rewritten


def test_another_key_makes_the_table_anew() -> None:
    found = evolution(shape("id BIGINT, a INT"), shape("id BIGINT, a INT", key=("a",)))
    assert [type(change) for change in found.changes] == [DropTable, CreateTable]
    assert found.emptied
