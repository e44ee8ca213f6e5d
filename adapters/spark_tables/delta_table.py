"""A Delta table read without Spark's Delta jars: opened at a version, its shape, and its rows in shares.

`deltalake` reads tables with column mapping and deletion vectors only as a whole, others file by file. What it cannot
read is refused with the feature that the table asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from adapters.spark_tables.delta_log import MAPPING_SETTING
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.shape import Shape
from adapters.spark_tables.source import missing
from adapters.spark_tables.values import RowReader
from changesource_sdk.adapter import Row
from changesource_sdk.errors import AdapterError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

SHARE_ROWS = 250_000
"""A share of a snapshot has about this many rows; files are split by their row groups, small ones are put together."""

_FEATURE = re.compile(r"[Ff]eature[s:]* '?\{?'?(\w+)")


def open_table(table: TableSettings, version: int | None = None) -> DeltaTable:
    """The table at a version, else at its newest."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(table.location, version=version, storage_options=dict(table.options) or None)
    except TableNotFoundError:
        raise missing(table.name, table.location) from None
    except DeltaError as error:
        raise unreadable(table, error) from error


def unreadable(table: TableSettings, error: Exception) -> AdapterError:
    """What stands in the way of reading a table that is there."""
    said = str(error).strip().splitlines()[0]
    if "nsupported" in said and (feature := _FEATURE.search(said)):
        return AdapterError(
            "unsupported-feature",
            f"the table asks its readers for {feature[1]!r}, which deltalake cannot read",
            table.where,
            f"drop the feature (ALTER TABLE … DROP FEATURE {feature[1]}), or sync a copy of the table without it",
        )
    fix = "see that the files are there, whole, and may be read; the table is tried again with a growing delay"
    return AdapterError("table-unreadable", said, table.where, fix)


def shape_of(table: TableSettings, schema: str) -> Shape:
    """A table's shape, from its schema as Delta writes it."""
    return Shape(table.name, StructType.fromJson(json.loads(schema)), table.key)


def is_whole_only(found: DeltaTable) -> bool:
    """Whether files alone do not make up the rows: names are mapped, or rows are marked as deleted."""
    mode = found.metadata().configuration.get(MAPPING_SETTING, "none")
    features = found.protocol().reader_features or ()
    return mode != "none" or "deletionVectors" in features


@dataclass(frozen=True, slots=True)
class DeltaShare:
    """Some files of a table at a version, or some row groups of one file; no files are all of it. Picklable."""

    settings: TableSettings
    version: int
    shape_json: str
    files: Sequence[str] = ()
    row_groups: Sequence[int] = ()

    @property
    def table(self) -> str:
        """The table's full name."""
        return Shape.from_json(self.shape_json).table.full_name

    def rows(self) -> Iterator[Row]:
        """The rows."""
        reader = RowReader(Shape.from_json(self.shape_json).fields)
        for batch in self.batches():
            yield from reader.rows(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they are stored."""
        found = open_table(self.settings, self.version)
        if not self.files:
            yield from pa.RecordBatchReader.from_stream(found.scan())
            return
        import pyarrow.dataset as ds

        whole = found.to_pyarrow_dataset()
        wanted = set(self.files)
        parts = [fragment for fragment in whole.get_fragments() if fragment.path in wanted]
        if self.row_groups:
            parts = [part.subset(row_group_ids=list(self.row_groups)) for part in parts]
        yield from ds.FileSystemDataset(parts, whole.schema, whole.format, whole.filesystem).to_batches()


def shares(table: TableSettings, found: DeltaTable, shape: Shape) -> list[DeltaShare]:
    """The rows of an opened table, in shares that can be read side by side."""
    version, text = found.version(), shape.to_json()
    if is_whole_only(found):
        return [DeltaShare(table, version, text)]
    result: list[DeltaShare] = []
    together: list[str] = []
    held = 0
    for fragment in found.to_pyarrow_dataset().get_fragments():
        rows = fragment.count_rows()
        if rows > SHARE_ROWS and fragment.num_row_groups > 1:
            result += [DeltaShare(table, version, text, (fragment.path,), (n,)) for n in range(fragment.num_row_groups)]
            continue
        together.append(fragment.path)
        held += rows
        if held >= SHARE_ROWS:
            result.append(DeltaShare(table, version, text, tuple(together)))
            together, held = [], 0
    if together:
        result.append(DeltaShare(table, version, text, tuple(together)))
    return result


def frame_of(session: SparkSession, shape: Shape, parts: Sequence[DeltaShare]) -> DataFrame:
    """Shares as a frame of Spark; each is read by one task."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = StructType([type(field)(field.name, field.dataType, True) for field in shape.fields])
    arrow = to_arrow_schema(schema, timezone="UTC")
    if not parts:
        return session.createDataFrame([], schema)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in parts[number].batches():
                    yield pa.Table.from_batches([rows]).select(arrow.names).cast(arrow).combine_chunks().to_batches()[0]

    return session.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)


def configuration(found: DeltaTable) -> Mapping[str, str]:
    """The table's properties."""
    properties: Mapping[str, str] = found.metadata().configuration
    return properties
