"""Taking a snapshot: from the store into the spool, and from there a new generation of the log.

Parts are written one by one here; the work of one part (`write_partition`) needs only picklable arguments, so other
runners spread it. Nothing counts until the log names the finished folder: a snapshot that fails or is killed leaves the
former generation in place and a folder that the next writer sweeps away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from changesource_sdk.adapter import Adapter, CreateTable, Partition, Snapshot, Table
from changesource_sdk.changelog import snapshots
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.log import EMPTY, LogWriter, SnapshotRecord
from changesource_sdk.changelog.snapshots import Manifest, PartInfo
from changesource_sdk.errors import AdapterError, ChangesourceError
from changesource_sdk.pipeline.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encode import TableEncoder
from changesource_sdk.pipeline.schema_frames import snapshot_schema
from changesource_sdk.pipeline.validate import check_table, known_table, known_watermark

_log = logging.getLogger(__name__)

Progress = Callable[[int], None]


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
        parts = _write_parts(directory, snapshot, tables, schema, rows_done, part_done)
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


def _write_parts(
    directory: Path,
    snapshot: Snapshot,
    tables: Sequence[Table],
    schema: ConsumerSchema,
    rows_done: Progress,
    part_done: Progress,
) -> Iterator[PartInfo]:
    before, after = snapshot_schema(tables)
    yield snapshots.write_frames(directory, 0, before)
    number = 0
    for number, partition in enumerate(snapshot.partitions, start=1):
        yield write_partition(directory, number, known_table(schema, partition.table), partition, rows_done)
        part_done(1)
    if after:
        yield snapshots.write_frames(directory, number + 1, after)


def write_partition(
    directory: Path, number: int, table: Table, partition: Partition, rows_done: Progress = lambda rows: None
) -> PartInfo:
    """One partition into one part; running it again replaces the part."""
    encoder = TableEncoder(table)
    with adapter_call(f"rows of {partition.table}, partition {number}"):
        return snapshots.write_part(directory, number, table.full_name, partition.rows(), encoder.inserts, rows_done)


def let_go(what: str, close: Callable[[], None]) -> None:
    """Close something of the adapter's; failing at that changes nothing and must not hide what happened before."""
    try:
        close()
    except Exception:
        _log.warning("%s failed", what, exc_info=True)


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
            where=where,
            fix="see the message of the store; the adapter is tried again with a growing delay",
        ) from error
