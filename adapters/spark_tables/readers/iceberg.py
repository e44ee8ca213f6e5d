"""Iceberg tables, read without Spark's Iceberg jars: `pyiceberg` plans the files, Spark tasks read them.

A table is named by its folder, by a metadata file, or by a catalog (`catalog.namespace.table`, with the catalog's
properties as options, or as `pyiceberg` finds them in its own configuration). Tasks read files as `pyiceberg` does, so
columns are found by their ids and deleted rows are left out, however the table was written. A column's id is its
identity: a renamed column stays the same.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters.spark_tables.readers.contract import reading
from adapters.spark_tables.rows.shape import IDENTITY
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import missing
from changesource_sdk import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_METADATA = re.compile(r"v?(\d+)(?:-[0-9a-f-]+)?(?:\.gz)?\.metadata\.json$")


@dataclass(frozen=True, slots=True)
class IcebergReader:
    """One Iceberg table."""

    table: TableSettings

    def fingerprint(self, session: SparkSession) -> str | None:
        """The current snapshot and schema."""
        opened = self._open()
        snapshot = opened.current_snapshot()
        return f"{opened.metadata.table_uuid} {snapshot and snapshot.snapshot_id} {opened.metadata.current_schema_id}"

    def frame(self, session: SparkSession) -> DataFrame:
        """The current snapshot; each of its files is read by one task."""
        opened = self._open()
        with reading(self.table):
            scan = opened.scan()
            schema = spark_schema(opened)
            tasks = [pickle.dumps(task) for task in scan.plan_files()]
            if not tasks:
                return session.createDataFrame([], schema)
            read = _FileReader(pickle.dumps((opened.metadata, opened.io, scan.projection())), tasks, schema)
            return session.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, schema)

    def _open(self) -> Table:
        try:
            from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
        except ImportError as error:
            raise ConfigurationError(
                "pyiceberg-missing",
                "Iceberg tables are read with pyiceberg, which is not installed",
                self.table.where,
                "pip install 'zero-changesource[iceberg]'",
            ) from error
        with reading(self.table):
            try:
                return _load(self.table)
            except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError):
                raise missing(self.table.name, self.table.location) from None


def _load(table: TableSettings) -> Table:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    location = table.location
    if location.endswith(".metadata.json"):
        return StaticTable.from_metadata(location, dict(table.options))
    if "/" in location:
        return StaticTable.from_metadata(newest_metadata(location), dict(table.options))
    catalog, _, name = location.partition(".")
    return load_catalog(catalog, **table.options).load_table(name)


def newest_metadata(location: str) -> str:
    """The metadata file of a table's folder that has the highest number."""
    from pathlib import Path

    from pyarrow import fs

    uri = location.rstrip("/") if "://" in location else Path(location).expanduser().resolve().as_uri()
    files, root = fs.FileSystem.from_uri(uri)
    listed = files.get_file_info(fs.FileSelector(f"{root}/metadata"))
    numbered = [(int(match[1]), info.base_name) for info in listed if (match := _METADATA.match(info.base_name))]
    if not numbered:
        raise FileNotFoundError(location)
    return f"{uri}/metadata/{max(numbered)[1]}"


def spark_schema(table: Table) -> StructType:
    """The table's columns in Spark's types, each with its id."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    iceberg = table.schema()
    fields = from_arrow_schema(iceberg.as_arrow()).fields
    return StructType(
        [
            StructField(fd.name, fd.dataType, True, {IDENTITY: str(column.field_id)})
            for fd, column in zip(fields, iceberg.fields, strict=True)
        ]
    )


@dataclass(frozen=True, slots=True)
class _FileReader:
    """What a Spark task does: read the files whose numbers it is given."""

    table: bytes
    tasks: list[bytes]
    schema: StructType

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyspark.sql.pandas.types import to_arrow_schema

        metadata, io, projection = pickle.loads(self.table)
        arrow = to_arrow_schema(self.schema)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                scan: Any = ArrowScan(metadata, io, projection, AlwaysTrue())
                for rows in scan.to_record_batches([pickle.loads(self.tasks[number])]):
                    yield from _as_spark(rows, arrow)


def _as_spark(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    yield from pa.Table.from_batches([rows]).select(schema.names).cast(schema).to_batches()
