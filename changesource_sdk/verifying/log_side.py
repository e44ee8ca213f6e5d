"""The rows of the log at a watermark: its newest snapshot up to there, and the transactions that follow.

Reads only, next to a running pipeline. If the log starts over meanwhile, a `StateError` is raised; try again then.
"""

from __future__ import annotations

from pathlib import Path

from changesource_sdk.changelog.coordination.consumers import transaction_of
from changesource_sdk.changelog.log import Log, SnapshotRecord
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import SnapshotGone, StateError
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.verifying.sides import Rows, Side, canonical_key, canonical_row
from protocol.codec import decode_changes
from protocol.fold.rows import FoldedTables

READ_BYTES = 4 << 20


def schema_at_head(store: LogStore) -> ConsumerSchema:
    """The schema consumers have at the log's head; raises `StateError` before the first snapshot."""
    reader = store.open_log()
    try:
        state = reader.state()
    finally:
        reader.close()
    if not state.generation:
        raise StateError("no-snapshot", "the log has no snapshot yet", fix="wait until `inspect` shows one")
    return ConsumerSchema.from_json(state.schema)


def log_side(store: LogStore, schema: ConsumerSchema, through: str | None = None) -> Side:
    """The rows at `through`, or at the head; raises `StateError` if the log does not reach or no longer knows it."""
    reader = store.open_log()
    try:
        wanted = through or reader.state().head
        record = base_snapshot(store, reader, wanted)
        folded = fold_spool(store.files.fetch(record.directory))
        reached = _follow(reader, record.watermark, wanted, folded)
    except SnapshotGone as error:
        raise _started_over(str(error)) from None
    finally:
        reader.close()
    # A replica without a transaction since its initial sync is at the version that was issued for that sync.
    if transaction_of(reached) != transaction_of(wanted):
        raise StateError(
            "unknown-watermark", f"the log has no such transaction; the last one before it is {reached}", wanted
        )
    return Side("log", wanted, side_tables(folded, schema))


def base_snapshot(store: LogStore, reader: Log, watermark: str) -> SnapshotRecord:
    """The newest snapshot that is not above a watermark and whose files are there."""
    known = [record for record in reader.snapshots() if store.files.holds(record.directory)]
    usable = [record for record in known if record.watermark <= watermark]
    if not usable:
        oldest = known[0].watermark if known else "(none)"
        message = f"watermark {watermark} is before the oldest snapshot the log still has, {oldest}"
        raise StateError("too-old", message, fix="take a later watermark; `changesource inspect` shows them")
    return usable[-1]


def side_tables(folded: FoldedTables, schema: ConsumerSchema) -> dict[str, Rows]:
    """Folded rows in the form in which they are compared."""
    # A table without rows may be in no partition and no change; consumers have it all the same.
    tables: dict[str, Rows] = {name: {} for name in schema.tables}
    for name, rows in folded.tables.items():
        documents = json_columns(schema, name)
        key = key_columns(schema, name)
        canonical = [canonical_row(row, documents) for row in rows.values()]
        tables[name] = {canonical_key(row, key or row): row for row in canonical}
    return tables


def json_columns(schema: ConsumerSchema, table: str) -> list[str]:
    """The columns of a table that hold JSON, as far as the schema knows it."""
    known = schema.tables.get(table)
    return [] if known is None else [column.name for column in known.columns if column.kind == "json"]


def key_columns(schema: ConsumerSchema, table: str) -> tuple[str, ...]:
    """The key columns of a table; none for a table without a key."""
    known = schema.tables.get(table)
    return () if known is None else tuple(known.key)


def fold_spool(directory: Path) -> FoldedTables:
    """The rows of a snapshot in the spool; raises `SnapshotGone` if it is removed meanwhile."""
    folded = FoldedTables()
    with snapshots.reading(directory):
        for block in snapshots.blocks(directory, snapshots.read_manifest(directory)):
            folded.apply(decode_changes(block))
    return folded


def _follow(reader: Log, after: str, through: str, folded: FoldedTables) -> str:
    """Fold the transactions up to a watermark; returns the last watermark reached."""
    while after < through:
        transactions = reader.read_after(after, READ_BYTES)
        if reader.state().oldest > after:
            raise _started_over(f"the log now begins at {reader.state().oldest}")
        if not transactions:
            return after
        for stored in transactions:
            if stored.watermark > through:
                return after
            for chunk in stored.chunks():
                folded.apply(decode_changes(chunk))
            after = stored.watermark
    return after


def _started_over(message: str) -> StateError:
    return StateError("log-moved", f"the log was started over or pruned while it was read: {message}", fix="try again")
