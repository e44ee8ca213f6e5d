"""The rows of a Delta table at a version, in partitions that tasks read in parallel, without a session.

Plain tables are read file by file. With column mapping, deletion vectors or other features, `deltalake` returns rows
and not files: those tables are read by ranges of their key if that is one integer, otherwise in one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegralType, StructType

from adapters.spark_tables.delta.table import maps_columns, open_table, reading
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.rows.values import ArrowRowReader
from adapters.spark_tables.settings import TableSettings
from changesource_sdk import Row

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

PARTITION_ROWS = 250_000
"""About how many rows a partition has; files are split by their row groups, small ones are combined."""

BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class DeltaPartition:
    """Rows of a table at a version: some files, or some row groups of one file, or those for which a predicate holds,
    or all. Picklable.
    """

    settings: TableSettings
    version: int
    shape_json: str
    files: Sequence[str] = ()
    row_groups: Sequence[int] = ()
    predicate: str | None = None

    @property
    def table(self) -> str:
        return Shape.from_json(self.shape_json).table.full_name

    def rows(self) -> Iterator[Row]:
        reader = ArrowRowReader(Shape.from_json(self.shape_json).fields)
        for batch in self.batches():
            yield from reader.rows(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they are stored."""
        with reading(self.settings):
            yield from self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds

        delta = open_table(self.settings, self.version)
        if not self.files:
            yield from pa.RecordBatchReader.from_stream(delta.scan(predicate=self.predicate))
            return
        whole = delta.to_pyarrow_dataset()
        wanted = set(self.files)
        parts = [fragment for fragment in whole.get_fragments() if fragment.path in wanted]
        if self.row_groups:
            parts = [part.subset(row_group_ids=list(self.row_groups)) for part in parts]
        dataset = ds.FileSystemDataset(parts, whole.schema, whole.format, whole.filesystem)
        yield from dataset.to_batches(batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1)


def _is_of_files(delta: DeltaTable) -> bool:
    """Whether the rows are exactly those of the files: no mapped columns, no deletion vectors."""
    from deltalake.table import SUPPORTED_READER_FEATURES

    required = set(delta.protocol().reader_features or ())
    return not maps_columns(delta) and required <= set(SUPPORTED_READER_FEATURES)


def partitions(table: TableSettings, delta: DeltaTable, shape: Shape) -> list[DeltaPartition]:
    """The partitions of an opened table."""
    version, text = delta.version(), shape.to_json()
    if not _is_of_files(delta):
        return [DeltaPartition(table, version, text, predicate=predicate) for predicate in _ranges(delta, shape)]
    with reading(table):
        return [DeltaPartition(table, version, text, *part) for part in _parts(delta)]


def _parts(delta: DeltaTable) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Files and their row groups (none: all), with about the same number of rows each."""
    together: list[str] = []
    held = 0
    for fragment in delta.to_pyarrow_dataset().get_fragments():
        rows = fragment.count_rows()
        if rows > PARTITION_ROWS and fragment.num_row_groups > 1:
            yield from (((fragment.path,), (number,)) for number in range(fragment.num_row_groups))
            continue
        together.append(fragment.path)
        held += rows
        if held >= PARTITION_ROWS:
            yield tuple(together), ()
            together, held = [], 0
    if together:
        yield tuple(together), ()


def _ranges(delta: DeltaTable, shape: Shape) -> list[str | None]:
    """Predicates that divide the rows by their key, as far as the files' statistics allow it."""
    name = shape.key[0]
    actions = pa.table(delta.get_add_actions(flatten=True))
    known = {f"min.{name}", f"max.{name}", "num_records"} <= set(actions.column_names)
    if len(shape.key) > 1 or not isinstance(shape.struct[name].dataType, IntegralType) or not known:
        return [None]
    least, most, rows = (pc.min(actions[f"min.{name}"]), pc.max(actions[f"max.{name}"]), pc.sum(actions["num_records"]))
    if None in (least.as_py(), most.as_py(), rows.as_py()):
        return [None]
    count = max(1, rows.as_py() // PARTITION_ROWS)
    width = (most.as_py() - least.as_py()) // count + 1
    edges = [least.as_py() + number * width for number in range(1, count)]
    bounds = zip([None, *edges], [*edges, None], strict=True)
    return [_between(name, low, high) for low, high in bounds]


def _between(name: str, low: int | None, high: int | None) -> str | None:
    """From `low` up to, but without, `high`; the first and last range are open, for rows that statistics miss."""
    column = '"' + name.replace('"', '""') + '"'
    sides = [f"{column} >= {low}"] * (low is not None) + [f"{column} < {high}"] * (high is not None)
    return " AND ".join(sides) or None


def has_all_files(table: TableSettings, delta: DeltaTable) -> bool:
    """Whether all data files of an opened version still exist."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow import fs

    files = fs.PyFileSystem(DeltaStorageHandler(table.location, dict(table.options) or None))
    paths = pa.table(delta.get_add_actions(flatten=True))["path"].to_pylist()
    return all(info.type == fs.FileType.File for info in files.get_file_info(paths))


def frame_of(session: SparkSession, shape: Shape, parts: Sequence[DeltaPartition]) -> DataFrame:
    """The partitions as a Spark frame; each is read by one task."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = StructType([type(field)(field.name, field.dataType, True) for field in shape.fields])
    arrow = to_arrow_schema(schema, timezone="UTC")
    if not parts:
        return session.createDataFrame([], schema)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in parts[number].batches():
                    yield from pa.Table.from_batches([rows]).select(arrow.names).cast(arrow).to_batches()

    return session.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)
