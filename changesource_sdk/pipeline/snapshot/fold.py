"""A snapshot in memory, as a consumer would have it: for `verify` and the conformance suite. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass

from changesource_sdk.adapter import Adapter, Position, Snapshot
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.validate import known_table
from changesource_sdk.pipeline.snapshot.row_encoding import RowEncoding
from changesource_sdk.pipeline.snapshot.take import checked_schema
from protocol.codec import decode_changes
from protocol.fold.rows import FoldedTables


@dataclass(frozen=True, slots=True)
class FoldedSnapshot:
    """All rows of a snapshot, encoded and folded as a consumer does it, and the schema that it has then.

    `left_out` is how many rows no consumer can hold.
    """

    position: Position
    schema: ConsumerSchema
    replica: FoldedTables
    left_out: int = 0


def fold_snapshot(adapter: Adapter, snapshot: Snapshot, rules: BadValueRules | None = None) -> FoldedSnapshot:
    """Read all partitions, one after another, and close the snapshot. Raises what the adapter raises, and what a bad
    row raises if no `rules` leave it out.
    """
    try:
        schema = checked_schema(tuple(adapter.tables() if snapshot.tables is None else snapshot.tables))
        replica, left_out = FoldedTables(), 0
        for partition in snapshot.partitions:
            table = known_table(schema, partition.table)
            encoder = RowEncoding(table, rules or BadValueRules())
            replica.table(table.full_name)  # so that a table without rows is there too
            for _, frames in encoder.inserts(partition.rows()):
                replica.apply(decode_changes(frames))
            left_out += encoder.left_out
    finally:
        if snapshot.close is not None:
            snapshot.close()
    return FoldedSnapshot(snapshot.position, schema, replica, left_out)
