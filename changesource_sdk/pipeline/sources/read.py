"""Reading one source as a whole: from a consistent snapshot of its upstream to one transaction.

The parts are written as those of any snapshot, on Spark by its tasks. Then they become one block file, one block in
memory at a time. The transaction replaces what consumers have of the source (`replacement`), so it serves the first
read and every later one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from changesource_sdk.adapter import Adapter, Snapshot
from changesource_sdk.changelog.dead_letters import LetterEdit, letter_of
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.log import EncodedTransaction, SourceRead, segment_prefix
from changesource_sdk.changelog.source_writer import SourceWriter, merged_schemas
from changesource_sdk.changelog.spool.blocks import BlockFile, BlockWriter
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.snapshots import PartInfo
from changesource_sdk.contract import checked_snapshot, checked_tables
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules, check_number
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.run import Run
from changesource_sdk.pipeline.snapshot.take import (
    SnapshotLane,
    SnapshotProgress,
    adapter_call,
    checked_schema,
    close_quietly,
    part_tasks,
    upstream_tables,
)
from changesource_sdk.pipeline.sources.replacement import Replacement, replacement
from changesource_sdk.positions import to_text
from service_kit.private_files import new_folder

_COPY_BYTES = 4 * 1024 * 1024


def read_source(
    run: Run,
    adapter: Adapter,
    writer: SourceWriter,
    fingerprint: str,
    lane: SnapshotLane,
    progress: SnapshotProgress,
    *,
    is_first: bool,
) -> SourceRead:
    """Read the upstream into one transaction, which the caller appends; its block file is in the folder of segments.

    `fingerprint` is that of the source's mapping. `is_first` says that it is for a new generation, whose consumers have
    no tables yet; otherwise a table name that another source has is refused here already, with `InvalidChange`, before
    any row is read.
    """
    with adapter_call("snapshot()"):
        snapshot = checked_snapshot(adapter.snapshot())
    try:
        with adapter_call("tables()"):
            tables = checked_tables(adapter.tables() if snapshot.tables is None else snapshot.tables)
        schema = checked_schema(tables)
        others = {} if is_first else {name: row for name, row in writer.sources().items() if name != run.source}
        held = "" if is_first else writer.row.schema
        around = ConsumerSchema.from_json(merged_schemas(others.values()))
        plan = replacement(ConsumerSchema.from_json(held), around, tables)
        row = writer.row._replace(
            position=to_text(snapshot.position),
            schema=LoggedSchema(plan.schema, upstream_tables(snapshot)).to_json(),
            fingerprint=fingerprint,
            reads=writer.row.reads + 1,
        )
        merged_schemas([*others.values(), row])
        rules = run.bad_value_rules(adapter)
        data, parts = _written(run, writer, snapshot, schema, plan, lane, progress, rules)
    finally:
        if snapshot.close is not None:
            close_quietly("closing the snapshot", snapshot.close)
    letters = [replace(letter_of(text), source=run.source) for part in parts for text in part.letters]
    check_number(letters)
    # What was left out before is over: this transaction has the newest version of every row.
    edits = [LetterEdit(name) for name in {**ConsumerSchema.from_json(held).tables, **plan.schema.tables}]
    edits += [LetterEdit(letter.table, letter.key, letter) for letter in letters]
    skips = [skip for skip in rules.skips if any(skip.matches("", each.name) for each in letters)]
    changes = sum(part.rows for part in parts) + len(plan.before) + len(plan.after)
    transaction = EncodedTransaction(
        snapshot.position, run.now_ms(), None, data, changes, row.schema, letters=tuple(edits), skips=tuple(skips)
    )
    return SourceRead(row, transaction)


def _written(
    run: Run,
    writer: SourceWriter,
    snapshot: Snapshot,
    schema: ConsumerSchema,
    plan: Replacement,
    lane: SnapshotLane,
    progress: SnapshotProgress,
    rules: BadValueRules,
) -> tuple[BlockFile | bytes, Sequence[PartInfo]]:
    """Write the parts, then the block file of the transaction; the file (nothing, if there is no table), and the
    parts.
    """
    tasks = part_tasks(snapshot, schema, rules)
    progress.begin(len(tasks))
    with _staged(run, writer, lane) as part_store:
        parts = lane.write_parts(part_store, tasks, progress)
        path = run.log_store.layout.segments / f"{segment_prefix(run.source)}{writer.row.epoch}-read.frames"
        with BlockWriter(path) as target:
            for frame in plan.before:
                target.write(frame)
            for part in parts:
                for block in _blocks(part_store, part):
                    target.write(block)
            for frame in plan.after:
                target.write(frame)
            file = target.finish()
        if not file.size:
            path.unlink()
            return b"", parts
        return file, parts


@contextmanager
def _staged(run: Run, writer: SourceWriter, lane: SnapshotLane) -> Iterator[PartStore]:
    """A folder for the parts, on the spool's disk, where all tasks see it; it is deleted at the end."""
    folder = run.log_store.layout.source_reads
    for leftover in folder.glob(f"source-{run.source}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    # Named by the epoch: a reader that was replaced may still write.
    directory = folder / f"source-{run.source}.{writer.row.epoch}"
    with disk_errors(directory):
        new_folder(directory)
    part_store = lane.part_store_of(directory)
    try:
        yield part_store
    finally:
        part_store.spool.delete(part_store.folder)
        shutil.rmtree(directory, ignore_errors=True)


def _blocks(part_store: PartStore, part: PartInfo) -> Iterator[bytes]:
    if part_store.directory is not None:
        yield from BlockFile(part_store.directory / part.file, part.bytes, part.crc32).blocks()
        return
    with tempfile.TemporaryDirectory(prefix="changesource-part-") as own:
        copied = Path(own) / part.file
        with part_store.spool.open(part_store.folder, part.file) as content, copied.open("wb") as sink:
            shutil.copyfileobj(content, sink, _COPY_BYTES)
        yield from BlockFile(copied, part.bytes, part.crc32).blocks()
