"""Taking a snapshot: from the upstream into the spool, and from there a new generation of the log.

Parts are written one by one here; the work of one part (`write_partition`) needs only picklable arguments, so other
runners spread it. Nothing counts until the log names the finished folder: a snapshot that fails or is killed leaves the
former generation as it is, and a folder that the next writer removes or resumes from (`resume`).
"""

from __future__ import annotations

import logging
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from changesource_sdk.adapter import (
    Adapter,
    CreateTable,
    ExplainingPartition,
    JsonPartition,
    Partition,
    Row,
    Snapshot,
    Table,
)
from changesource_sdk.changelog.dead_letters import DeadLetter, letter_of
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import SnapshotRecord
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.snapshots import Manifest, PartInfo
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.contract import checked_snapshot, checked_tables
from changesource_sdk.errors import AdapterError, ChangesourceError, InvalidChange
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules, check_number
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.encoding.schema_frames import snapshot_schema
from changesource_sdk.pipeline.encoding.validate import check_table, known_table, known_watermark
from changesource_sdk.pipeline.mapping.source import MappedSnapshot
from changesource_sdk.pipeline.snapshot.resume import SnapshotPlan, Unfinished
from changesource_sdk.pipeline.snapshot.row_encoding import RowEncoding
from protocol.watermark import EMPTY
from service_kit.logs import event, logger

_log = logger("runner")

_NOT_THE_AUTHORS = (
    str(Path(__file__).parents[2]),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    "<",
)
"""Where code lives that no adapter's author wrote: ours, Python's, and what was installed."""

Count = Callable[[int], None]


def _ignore(number: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """Who is called while a snapshot is taken: `begin` with the number of partitions, the others with what was added
    since the last call. `rows_done` may raise to end the snapshot.
    """

    begin: Count = _ignore
    rows_done: Count = _ignore
    part_done: Count = _ignore


@dataclass(frozen=True, slots=True)
class PartTask:
    """One partition to write as one part; picklable if the partition is."""

    number: int
    table: Table
    partition: Partition
    rules: BadValueRules = field(default_factory=BadValueRules)


PartsWriter = Callable[[PartStore, Sequence[PartTask], SnapshotProgress], Sequence[PartInfo]]
"""Writes parts, puts them into the part store and reports progress; in this process or in others."""


def write_parts_here(
    part_store: PartStore, tasks: Sequence[PartTask], progress: SnapshotProgress
) -> Sequence[PartInfo]:
    """One part after the other, in this process."""
    parts = []
    for task in tasks:
        with part_store.scratch() as own:
            part = write_partition(own, task, progress.rows_done)
            part_store.put(own / part.file, part)
        parts.append(part)
        progress.part_done(1)
    return parts


@dataclass(frozen=True, slots=True)
class SnapshotLane:
    """How a snapshot is written: by which processes, to which store for a staged folder, and whether it is resumed.

    With `unfinished`, a snapshot that was interrupted is resumed where its upstream allows it.
    """

    write_parts: PartsWriter = write_parts_here
    part_store_of: Callable[[Path], PartStore] = PartStore.local
    unfinished: Unfinished | None = None


def take_snapshot(
    adapter: Adapter,
    writer: LogWriter,
    layout: StateDirectory,
    now_ms: Callable[[], float],
    *,
    above: str = EMPTY,
    progress: SnapshotProgress | None = None,
    lane: SnapshotLane | None = None,
    rules: BadValueRules | None = None,
) -> SnapshotRecord:
    """Read the upstream into a new generation whose watermark is above `above`; `rules` say what is done with rows
    that no consumer can hold.
    """
    progress, lane = progress or SnapshotProgress(), lane or SnapshotLane()
    unfinished = lane.unfinished
    plan = unfinished.resume(lambda mark: writer.next_generation(above, mark) == mark) if unfinished else None
    if plan is None:
        plan = _plan(adapter, writer, layout, now_ms, above, may_resume=unfinished is not None)
    is_kept = False
    try:
        is_kept = unfinished is not None and unfinished.keep(plan)
        progress.begin(len(plan.snapshot.partitions))
        manifest, letters = _write(plan, lane, progress, rules or BadValueRules())
        skips = [
            skip for skip in (rules.skips if rules else ()) if any(skip.matches("", each.name) for each in letters)
        ]
        final = snapshots.complete(plan.directory, manifest)
        record = writer.start_generation(
            plan.watermark, plan.snapshot.position, manifest.schema, final, plan.created_ms, letters, skips
        )
    except BaseException as error:
        # What the upstream gave is at fault: reading the same rows again would fail again.
        if not is_kept or isinstance(error, AdapterError):
            _forget(plan, unfinished)
        raise
    _forget(plan, unfinished)
    return record


def _forget(plan: SnapshotPlan, unfinished: Unfinished | None) -> None:
    plan.close()
    if unfinished is not None:
        unfinished.forget()


def _plan(
    adapter: Adapter,
    writer: LogWriter,
    layout: StateDirectory,
    now_ms: Callable[[], float],
    above: str,
    *,
    may_resume: bool,
) -> SnapshotPlan:
    """Open a new snapshot of the upstream and a folder for its parts."""
    with adapter_call("snapshot()"):
        snapshot = checked_snapshot(adapter.snapshot())
    try:
        with adapter_call("tables()"):
            tables = checked_tables(adapter.tables() if snapshot.tables is None else snapshot.tables)
        checked_schema(tables)
        known_watermark(snapshot.watermark, "snapshot()")
        watermark = writer.next_generation(above, snapshot.watermark)
        directory = snapshots.stage(layout.spool, watermark, resumable=may_resume and snapshot.can_resume is not None)
    except BaseException:
        if snapshot.close is not None:
            close_quietly("closing the snapshot", snapshot.close)
        raise
    return SnapshotPlan(watermark, directory, snapshot, tables, now_ms())


def _write(
    plan: SnapshotPlan, lane: SnapshotLane, progress: SnapshotProgress, rules: BadValueRules
) -> tuple[Manifest, list[DeadLetter]]:
    """Write all parts that are not there yet; what the whole consists of, and the rows that were left out."""
    part_store = lane.part_store_of(plan.directory)
    schema = checked_schema(plan.tables)
    before, after = snapshot_schema(plan.tables)
    tasks = part_tasks(plan.snapshot, schema, rules)
    done = part_store.finished()
    progress.part_done(len(done))
    progress.rows_done(sum(part.rows for part in done.values()))
    first = snapshots.write_frames(plan.directory, 0, before)
    missing = [task for task in tasks if snapshots.part_name(task.number) not in done]
    done |= {part.file: part for part in lane.write_parts(part_store, missing, progress)}
    parts = [first, *(done[snapshots.part_name(task.number)] for task in tasks)]
    if after:
        parts.append(snapshots.write_frames(plan.directory, len(tasks) + 1, after))
    letters = [letter_of(text) for part in parts for text in part.letters]
    check_number(letters)
    part_store.remove_notes()
    bare = tuple(replace(part, letters=()) for part in parts)
    logged = LoggedSchema(schema, upstream_tables(plan.snapshot)).to_json()
    return Manifest(plan.watermark, plan.snapshot.position, logged, plan.created_ms, bare), letters


def upstream_tables(snapshot: Snapshot) -> tuple[Table, ...] | None:
    """The adapter's own tables if mappings change them; None if consumers have the same, or an earlier release planned
    the snapshot.
    """
    return tuple(snapshot.upstream) if isinstance(snapshot, MappedSnapshot) else None


def checked_schema(tables: Sequence[Table]) -> ConsumerSchema:
    """The consumer's schema after creating these tables, each one checked."""
    schema = ConsumerSchema()
    for table in tables:
        check_table(schema, table)
        schema = schema.apply(CreateTable(table))
    return schema


def part_tasks(snapshot: Snapshot, schema: ConsumerSchema, rules: BadValueRules) -> list[PartTask]:
    """One task for each partition of a snapshot, numbered from 1."""
    return [
        PartTask(number, known_table(schema, partition.table), partition, rules)
        for number, partition in enumerate(snapshot.partitions, start=1)
    ]


def write_partition(directory: Path, task: PartTask, rows_done: Count = _ignore) -> PartInfo:
    """One partition into one part; running it again replaces the part."""
    table = task.table
    with adapter_call(f"rows of {table.full_name}, partition {task.number}"):
        encoder, partition, name = RowEncoding(table, task.rules), task.partition, table.full_name
        if isinstance(partition, JsonPartition):
            objects = partition.json_rows(encoder.row_json)
            part = snapshots.write_part(directory, task.number, name, objects, encoder.json_inserts, rows_done)
            return replace(part, letters=encoder.letters())
        try:
            part = snapshots.write_part(directory, task.number, name, partition.rows(), encoder.inserts, rows_done)
        except InvalidChange as error:
            if not isinstance(partition, ExplainingPartition):
                raise
            explained = partition.explain(error, partial(_is_refused, TableEncoder(table)))
            explained.refused = error.refused
            raise explained from error
        return replace(part, letters=encoder.letters())


def _is_refused(encoder: TableEncoder, row: Row) -> bool:
    try:
        encoder.row_json(row)
    except InvalidChange:
        return True
    return False


def close_quietly(what: str, close: Callable[[], None]) -> None:
    """Call `close` and log what it raises: a failure to close must not hide an earlier error."""
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
            fix="see the message of the upstream; the adapter is tried again with a growing delay",
        ) from error


def _origin(error: Exception) -> str:
    """File and line of the adapter's that led to the error; what it called is not its author's business."""
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_AUTHORS)]
    frame = (foreign or frames)[-1]
    return f"{Path(frame.filename).name} line {frame.lineno}"
