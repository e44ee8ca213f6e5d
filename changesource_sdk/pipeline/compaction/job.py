"""One compaction from start to offer: what is read, by whom, and what comes out.

The snapshot it starts from and the log up to the head of that moment do not change while it works, and the upstream
is not read at all. The work is done in a *lane* (this process, or Spark tasks): scanning the log, then sorting
and folding. Parts of tables that no change touched are taken over as they are. The result is offered to the log's
writer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.log import Log, LogRange
from changesource_sdk.changelog.reading import ranges
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.snapshots import Manifest, PartInfo
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import SnapshotGone, StateError
from changesource_sdk.pipeline.compaction.fold import (
    Change,
    Findings,
    Item,
    Sorting,
    Tie,
    fold,
    groups_of,
    has_partial_moves,
)
from changesource_sdk.pipeline.compaction.history import SchemaHistory
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.pipeline.encoding.schema_frames import existing_schema
from changesource_sdk.schema import Table
from protocol.codec import decode_downstream
from protocol.framing import frame, unframe
from protocol.messages import Data

RANGE_BYTES = 32 * 1024 * 1024
"""Frames of the log that one task reads."""

BUCKET_BYTES = 32 * 1024 * 1024
"""Frames that one bucket of rows is meant to hold."""

MOST_BUCKETS = 256
_READ_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 256

OpenLog = Callable[[], Log]
"""Opens the log, in whatever process it is called; picklable."""


CopyFile = Callable[[str, str, Path], None]
"""Copies a file of a snapshot to this host: watermark, name, target; picklable."""


@dataclass(frozen=True, slots=True)
class ReadableRange:
    """A range of the log that any process can read."""

    open_log: OpenLog
    log_range: LogRange

    def changes(self) -> Iterator[Change]:
        """Its changes, each with its order. Raises `SnapshotGone` if the log no longer has all of it."""
        reader = self.open_log()
        after, through = self.log_range.after, self.log_range.through
        try:
            while after < through:
                for stored in reader.read_after(after, _READ_BYTES):
                    if stored.watermark > through:
                        raise self._gone()
                    after = stored.watermark
                    yield from _numbered(after, stored.chunks())
                    if after == through:
                        return
                if reader.state().oldest > self.log_range.after or after == self.log_range.after:
                    raise self._gone()
        finally:
            reader.close()

    def _gone(self) -> SnapshotGone:
        return SnapshotGone(
            "log-started-over", "the log started over while it was compacted", fix="nothing to do: it is tried again"
        )


def _numbered(watermark: str, chunks: Iterable[bytes]) -> Iterator[Change]:
    payloads = (payload for chunk in chunks for payload in unframe(chunk))
    for number, payload in enumerate(payloads):
        if payload.startswith(b'["data"'):
            yield (watermark, number), payload


@dataclass(frozen=True, slots=True)
class SpoolPart:
    """A part of the old snapshot that any process can read: from its file, else from the spool that hosts share."""

    directory: Path
    part: PartInfo
    copy: CopyFile

    def payloads(self) -> Iterator[bytes]:
        """Its messages."""
        for block in self.blocks():
            yield from unframe(block)

    def blocks(self) -> Iterator[bytes]:
        """Its frames, one block at a time."""
        path = self.directory / self.part.file
        if path.exists():
            yield from self._read(path)
            return
        with tempfile.TemporaryDirectory(prefix="changesource-part-") as folder:
            path = Path(folder) / self.part.file
            self.copy(self.directory.name, self.part.file, path)
            yield from self._read(path)

    def _read(self, path: Path) -> Iterator[bytes]:
        return BlockFile(path, self.part.bytes, self.part.crc32).blocks()


@dataclass(frozen=True, slots=True)
class Folding:
    """All that is needed to fold: what to read, how to sort it, into how many buckets, and where to write."""

    parts: Sequence[SpoolPart]
    log_ranges: Sequence[ReadableRange]
    history: SchemaHistory
    sorting: Sorting
    buckets: int
    directory: Path
    part_store: PartStore
    first_part: int

    def write_bucket(self, bucket: int, items: Iterable[Item], directory: Path) -> list[PartInfo]:
        """Fold sorted items into one part per table."""
        parts = []
        width = len(self.history.numbered)
        for number, rows in groupby(fold(self.history, items), key=itemgetter(0)):
            table = self.history.numbered[number].table
            assert table is not None
            name = self.first_part + bucket * width + number
            rows_only = map(itemgetter(1), rows)
            parts.append(snapshots.write_part(directory, name, table.full_name, rows_only, wire_inserts(table)))
        return parts


Done = Callable[[int], None]
"""Called with the units of work (ranges, parts, buckets) done since the last call; 0 says that work continues."""


class Lane(Protocol):
    """Where the work of a compaction is done."""

    def scan(self, log_ranges: Sequence[ReadableRange], done: Done) -> Sequence[Findings]:
        """`compaction.scan` of every range."""

    def ties(self, log_ranges: Sequence[ReadableRange], sorting: Sorting, done: Done) -> Sequence[Tie]:
        """`Sorting.ties` of every range, together."""

    def fold(self, folding: Folding, done: Done) -> Sequence[PartInfo]:
        """Sort all items into buckets and write the parts of each."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Called while a compaction runs: with units of work that turn out to be needed, and units that are done."""

    planned: Done = lambda units: None
    done: Done = lambda units: None


NO_PROGRESS = Progress()


def compact(
    log_store: LogStore,
    lane: Lane,
    now_ms: Callable[[], float],
    *,
    range_bytes: int = RANGE_BYTES,
    bucket_bytes: int = BUCKET_BYTES,
    progress: Progress = NO_PROGRESS,
) -> str | None:
    """Make a snapshot at the log's head from the newest one and offer it to the writer.

    Returns its watermark, None if the log has nothing after the newest snapshot.
    """
    with closing(log_store.open_log()) as log:
        state, known = log.state(), log.snapshots()
        if not known or known[-1].watermark >= state.head:
            return None
        base = known[-1]
        cut = ranges(log, base.watermark, state.head, range_bytes)
    log_ranges = [ReadableRange(log_store.open_log, each) for each in cut]
    log_store.files.fetch(base.directory)
    with snapshots.reading(base.directory):
        compaction = _Compaction(log_store.files, lane, bucket_bytes, progress, base.directory)
        schema = ConsumerSchema.from_json(state.schema)
        directory = snapshots.stage(log_store.layout.compaction, state.head)
        before, after = existing_schema(schema)
        parts = [snapshots.write_frames(directory, 0, before)]
        parts += compaction.row_parts(log_ranges, schema, directory)
        if after:
            parts.append(snapshots.write_frames(directory, 1, after))
    manifest = Manifest(state.head, state.position, state.schema, now_ms(), tuple(parts))
    final = snapshots.complete(directory, manifest)
    log_store.files.publish(final)
    log_store.handoff.offer(base.watermark, final)
    return state.head


def rows_at(
    log_store: LogStore,
    lane: Lane,
    base: Path,
    log_ranges: Sequence[ReadableRange],
    schema: ConsumerSchema,
    directory: Path,
    progress: Progress = NO_PROGRESS,
) -> list[PartInfo]:
    """Write parts with the rows of the snapshot in `base` after these ranges of the log, at whose end is `schema`.

    They go into the staged folder `directory`, which the caller made. Nothing is offered to the writer.
    """
    return _Compaction(log_store.files, lane, BUCKET_BYTES, progress, base).row_parts(log_ranges, schema, directory)


@dataclass(frozen=True, slots=True)
class _Compaction:
    """What one compaction carries through its steps; `base` is the folder of the old snapshot on this host."""

    files: SnapshotFiles
    lane: Lane
    bucket_bytes: int
    progress: Progress
    base: Path

    def row_parts(self, log_ranges: Sequence[ReadableRange], schema: ConsumerSchema, directory: Path) -> list[PartInfo]:
        """Write the parts with rows into a staged folder; parts of tables that did not change are taken over."""
        lane, progress, old = self.lane, self.progress, snapshots.read_manifest(self.base)
        progress.planned(len(log_ranges))
        findings = lane.scan(log_ranges, progress.done)
        history = history_of(ConsumerSchema.from_json(old.schema), findings, schema)
        ties: Sequence[Tie] = ()
        if has_partial_moves(history, findings):
            progress.planned(len(log_ranges))
            ties = lane.ties(log_ranges, Sorting(history), progress.done)
        touched = set[str]().union(*(each.touched for each in findings))
        rows = [part for part in old.parts if part.table]
        kept = [part for part in rows if part.table not in touched and history.unchanged(part.table)]
        read = [part for part in rows if part not in kept]
        parts = [_take_over(self.base, part, directory, number) for number, part in enumerate(kept, start=2)]
        size = sum(part.bytes for part in read) + sum(each.log_range.bytes for each in log_ranges)
        buckets = min(MOST_BUCKETS, 1 + size // self.bucket_bytes)
        folding = Folding(
            parts=[SpoolPart(self.base, part, self.files.copy) for part in read],
            log_ranges=log_ranges,
            history=history,
            sorting=Sorting(history, groups_of(ties)),
            buckets=buckets,
            directory=directory,
            part_store=self.files.part_store(directory),
            first_part=2 + len(kept),
        )
        progress.planned(len(read) + len(log_ranges) + buckets)
        return parts + list(lane.fold(folding, progress.done))


def history_of(base: ConsumerSchema, findings: Iterable[Findings], final: ConsumerSchema) -> SchemaHistory:
    """The history of the tables from one schema to another; the events between must lead from one to the other."""
    events = [event for each in findings for event in each.events]
    decoded = ((order, decode_downstream(payload)) for order, payload in events)
    changes = [(order, message.change) for order, message in decoded if isinstance(message, Data)]
    history = SchemaHistory(base, changes, final)
    if {table.table.full_name for table in history.numbered if table.table} != set(final.tables):
        raise StateError(
            "compaction-mismatch",
            "the schema changes in the log do not lead to the schema at its head",
            fix="report this; the log is served as it is, and is not compacted",
        )
    return history


def _take_over(source: Path, part: PartInfo, directory: Path, number: int) -> PartInfo:
    """The same part in another snapshot, sharing its file where the disk can do that."""
    name = snapshots.part_name(number)
    with disk_errors(directory):
        try:
            os.link(source / part.file, directory / name)
        except OSError:
            shutil.copyfile(source / part.file, directory / name)
    return PartInfo(name, part.table, part.rows, part.bytes, part.crc32)


def wire_inserts(table: Table) -> Callable[[Iterable[bytes]], Iterator[tuple[int, bytes]]]:
    """Encodes rows that are JSON already, as (number of rows, frames) batches."""
    head = b'["data",{"tag":"insert","relation":%s,"new":' % TableEncoder(table).relation

    def inserts(rows: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        remaining = iter(rows)
        while batch := list(islice(remaining, _BATCH_ROWS)):
            yield len(batch), b"".join([frame(b"%s%s}]" % (head, row)) for row in batch])

    return inserts
