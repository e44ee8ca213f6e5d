"""Iceberg tables are followed without jars: snapshots by their id, columns by theirs, rows as the table has them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import IntegerType

from adapters.spark_tables import SparkTablesAdapter
from changesource_sdk.adapter import AddColumn, AlterColumn, Change, Column, Delete, Insert, Update
from changesource_sdk.errors import AdapterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def people(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    made.create_namespace("shop")
    return made


def adapter(tmp_path: Path, location: str, **options: str) -> SparkTablesAdapter:
    section = {"iceberg": location, "key": "id", "options": options}
    return SparkTablesAdapter(tables={"people": section}, state=str(tmp_path / "state"))


def rows_of(partitions: Iterable[Any]) -> list[dict[str, object]]:
    return [dict(row) for partition in partitions for row in partition.rows()]


def test_a_table_is_followed_through_appends_deletes_and_schema_changes(tmp_path: Path, catalog: SqlCatalog) -> None:
    table = catalog.create_table("shop.people", SCHEMA)
    table.append(people((1, "ann"), (2, None)))
    lake = adapter(tmp_path, str(table.location()))
    snapshot = lake.snapshot()
    assert sorted(rows_of(snapshot.partitions), key=str) == [{"id": 1, "name": "ann"}, {"id": 2, "name": None}]
    position = snapshot.position

    def look() -> list[Change]:
        nonlocal position
        lake._due.clear()
        seen: list[Change] = []
        for transaction in lake.changes(position):
            seen += transaction.changes
            position = transaction.position
        return seen

    assert look() == []
    table.delete("id = 1")
    assert look() == [Delete("people", {"id": 1})]
    with table.update_schema() as update:
        update.rename_column("name", "full name")
    assert look() == [AlterColumn("people", "name", Column("full name", "text"))]
    with table.update_schema() as update:
        update.add_column("age", IntegerType())
    assert look() == [AddColumn("people", Column("age", "int4"))]
    table.append(pa.table({"id": pa.array([3]), "full name": ["eve"], "age": pa.array([7], pa.int32())}))
    assert look() == [Insert("people", {"id": 3, "full name": "eve", "age": 7})]
    wanted = pa.table({"id": pa.array([3]), "full name": ["eva"], "age": pa.array([7], pa.int32())})
    table.overwrite(wanted, overwrite_filter="id = 3")
    assert look() == [Update("people", {"id": 3, "full name": "eva", "age": 7})]


def test_a_table_is_found_by_its_catalog_too(tmp_path: Path, catalog: SqlCatalog) -> None:
    catalog.create_table("shop.people", SCHEMA).append(people((1, "ann")))
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}
    snapshot = adapter(tmp_path, "lake.shop.people", **options).snapshot()
    assert rows_of(snapshot.partitions) == [{"id": 1, "name": "ann"}]


@pytest.mark.parametrize("location", ["/nowhere/people", "lake.shop.nobody"])
def test_a_missing_table_is_named(tmp_path: Path, catalog: SqlCatalog, location: str) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}
    with pytest.raises(AdapterError) as error:
        adapter(tmp_path, location, **({} if "/" in location else options)).snapshot()
    assert (error.value.code, error.value.where) == ("table-missing", "table people")


def test_an_empty_table_has_no_rows_yet(tmp_path: Path, catalog: SqlCatalog, spark: SparkSession) -> None:
    table = catalog.create_table("shop.people", SCHEMA)
    lake = adapter(tmp_path, str(table.location()))
    snapshot = lake.snapshot()
    assert rows_of(snapshot.partitions) == []
    table.append(people((1, "ann")))
    (found,) = lake.changes(snapshot.position)
    assert list(found.changes) == [Insert("people", {"id": 1, "name": "ann"})]
