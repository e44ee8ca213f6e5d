"""Taking a snapshot: from the store into the spool, and from there a new generation of the log.

Parts are written one by one here; the work of one part (`write_partition`) needs only picklable arguments, so other
runners spread it. Nothing counts until the log names the finished folder: a snapshot that fails or is killed leaves the
former generation in place and a folder that the next writer sweeps away.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Adapter, CreateTable, Partition, Snapshot, Table
from changesource_sdk.changelog import snapshots
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.log import EMPTY, LogWriter, SnapshotRecord
from changesource_sdk.changelog.snapshots import Manifest, PartInfo
from changesource_sdk.errors import AdapterError, ChangesourceError
from changesource_sdk.observe.logs import event, logger
from changesource_sdk.pipeline.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encode import TableEncoder
from changesource_sdk.pipeline.schema_frames import snapshot_schema
from changesource_sdk.pipeline.validate import check_table, known_table, known_watermark

_log = logger("runner")

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class PartTask:
    """One partition to write as one part; picklable if the partition is."""

    number: int
    table: Table
    partition: Partition


PartsWriter = Callable[[Path, Sequence[PartTask], Progress, Progress], Sequence[PartInfo]]
"""Writes parts into a folder, telling rows and parts done; where the work happens is its choice."""


def write_parts_here(
    directory: Path, tasks: Sequence[PartTask], rows_done: Progress, part_done: Progress
) -> Sequence[PartInfo]:
    """One part after the other, in this process."""
    parts = []
    for task in tasks:
        parts.append(write_partition(directory, task, rows_done))
        part_done(1)
    return parts


def take_snapshot(
    adapter: Adapter,
    writer: LogWriter,
    layout: StateDirectory,
    now_ms: Callable[[], float],
    *,
    above: str = EMPTY,
    begin: Progress = lambda partitions: None,
    rows_done: Progress = lambda rows: None,
    part_done: Progress = lambda parts: None,
    write_parts: PartsWriter = write_parts_here,
) -> SnapshotRecord:
    """Read the store into a new generation whose watermark is above `above`; the callbacks hear of progress."""
    with adapter_call("snapshot()"):
        snapshot = adapter.snapshot()
    try:
        with adapter_call("tables()"):
            tables = list(adapter.tables() if snapshot.tables is None else snapshot.tables)
        schema = checked_schema(tables)
        known_watermark(snapshot.watermark, "snapshot()")
        begin(len(snapshot.partitions))
        watermark = writer.next_generation(above, snapshot.watermark)
        created_ms = now_ms()
        directory = snapshots.stage(layout.spool, watermark)
        before, after = snapshot_schema(tables)
        tasks = _part_tasks(snapshot, schema)
        parts = [snapshots.write_frames(directory, 0, before)]
        parts += write_parts(directory, tasks, rows_done, part_done)
        if after:
            parts.append(snapshots.write_frames(directory, len(tasks) + 1, after))
        manifest = Manifest(watermark, snapshot.position, schema.to_json(), created_ms, tuple(parts))
        final = snapshots.complete(directory, manifest)
        return writer.start_generation(watermark, snapshot.position, manifest.schema, final, created_ms)
    finally:
        if snapshot.close is not None:
            let_go("closing the snapshot", snapshot.close)


def checked_schema(tables: Sequence[Table]) -> ConsumerSchema:
    """The consumer's schema after creating these tables, each one checked."""
    schema = ConsumerSchema()
    for table in tables:
        check_table(schema, table)
        schema = schema.apply(CreateTable(table))
    return schema


def _part_tasks(snapshot: Snapshot, schema: ConsumerSchema) -> list[PartTask]:
    return [
        PartTask(number, known_table(schema, partition.table), partition)
        for number, partition in enumerate(snapshot.partitions, start=1)
    ]


def write_partition(directory: Path, task: PartTask, rows_done: Progress = lambda rows: None) -> PartInfo:
    """One partition into one part; running it again replaces the part."""
    table = task.table
    with adapter_call(f"rows of {table.full_name}, partition {task.number}"):
        rows = task.partition.rows()
        return snapshots.write_part(
            directory, task.number, table.full_name, rows, TableEncoder(table).inserts, rows_done
        )


def let_go(what: str, close: Callable[[], None]) -> None:
    """Close something of the adapter's; failing at that changes nothing and must not hide what happened before."""
    try:
        close()
    except Exception as error:
        event(_log, logging.WARNING, f"{what} failed", error=error)


@contextmanager
def adapter_call(where: str) -> Iterator[None]:
    """Turn whatever an adapter raises into an `AdapterError` that says where; our own errors pass."""
    try:
        yield
    except ChangesourceError:
        raise
    except Exception as error:
        raise AdapterError(
            "adapter-failed",
            f"{type(error).__name__}: {error}",
            where=f"{where}, {_origin(error)}",
            fix="see the message of the store; the adapter is tried again with a growing delay",
        ) from error


def _origin(error: Exception) -> str:
    """File and line that raised, for the adapter's author."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name} line {frame.lineno}"
