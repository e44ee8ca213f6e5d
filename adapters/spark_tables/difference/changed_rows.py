"""Reads the files that a difference has written, as changes and as partitions of a snapshot.

Files are read batch by batch, so a difference may be larger than memory. Reading them again gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds

from adapters.spark_tables.difference.files import DELETE, INSERT, OPERATION
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.rows.values import ArrowRowReader
from changesource_sdk import Change, Delete, Insert, Row, Update

BATCH_ROWS = 8_192


def changes_of(folder: StateFolder, version: StateVersion, shape: Shape) -> Iterator[Change]:
    """The changes that made a version: what its last delta holds."""
    name, reader = shape.table.full_name, ArrowRowReader(shape.fields)
    key_fields = [shape.struct[column] for column in shape.key]
    keys = ArrowRowReader(key_fields)
    for batch in _batches(folder, folder.parquet_files(version.deltas[-1])):
        operations = batch.column(OPERATION).to_pylist()
        key_names = [field.name for field in key_fields]
        key_rows = keys.rows(_named(batch, "k", key_names))
        rows = reader.rows(_named(batch, "r", [field.name for field in shape.fields]))
        for operation, key, row in zip(operations, key_rows, rows, strict=True):
            if operation == DELETE:
                yield Delete(name, key)
            else:
                yield Insert(name, row) if operation == INSERT else Update(name, row)


def inserts_of(folder: StateFolder, version: StateVersion, shape: Shape) -> Iterator[Change]:
    """All rows of a version that has a copy of them."""
    for part in partitions_of(folder, version, shape):
        yield from (Insert(part.table, row) for row in part.rows())


@dataclass(frozen=True, slots=True)
class CopyPartition:
    """Some files of a copy of a table. Picklable: it is read by a task that has no session."""

    root: str
    files: Sequence[str]
    shape_json: str

    @property
    def table(self) -> str:
        return Shape.from_json(self.shape_json).table.full_name

    def rows(self) -> Iterator[Row]:
        fields = Shape.from_json(self.shape_json).fields
        reader = ArrowRowReader(fields)
        for batch in _batches(StateFolder(self.root), self.files):
            yield from reader.rows(_named(batch, "r", [field.name for field in fields]))


def partitions_of(folder: StateFolder, version: StateVersion, shape: Shape) -> list[CopyPartition]:
    """The copy of a table that belongs to a version, one partition per file."""
    text = shape.to_json()
    return [CopyPartition(folder.root, (path,), text) for path in folder.parquet_files(f"rows-{version.number}")]


def holds_copy(root: str, number: int) -> bool:
    """Whether a version and the copy of its rows are there."""
    folder = StateFolder(root)
    return folder.load(number) is not None and folder.holds(f"rows-{number}")


def remove_copy(root: str, number: int) -> None:
    """Delete the copy of a version."""
    StateFolder(root).remove(f"rows-{number}")


def _batches(folder: StateFolder, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if files:
        dataset = ds.dataset(list(files), filesystem=folder.files, format="parquet")
        yield from dataset.to_batches(batch_size=BATCH_ROWS)


def _named(batch: pa.RecordBatch, letter: str, names: Sequence[str]) -> pa.RecordBatch:
    """The columns `k0`, `k1`, … or `r0`, `r1`, … of a batch by their own names."""
    columns = [batch.column(f"{letter}{index}") for index in range(len(names))]
    return pa.RecordBatch.from_arrays(columns, names=list(names))
