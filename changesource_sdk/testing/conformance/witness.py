"""A consumer of the log: folds the snapshot and every transaction after it, and passes each state to the judge.

It reads the log as an endpoint does, so it sees exactly what a cache would be sent, over restarts of the pipeline and
new generations of the log.
"""

from __future__ import annotations

from changesource_sdk.changelog.log import SnapshotRecord, StoredTransaction
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.positions import Position
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.verifying.log_side import fold_spool
from protocol.codec import decode_changes
from protocol.fold.rows import FoldedTables, Key, rows_of

READ_BYTES = 4 << 20


class Witness:
    """One consumer. Invariant: `replica` is the log's state at `watermark` of `generation`."""

    def __init__(self, store: LogStore, judge: Judge) -> None:
        self.judge = judge
        # All three are written by `poll`; generation 0 is before the first snapshot.
        self.replica = FoldedTables()
        self.watermark = ""
        self.generation = 0
        self._log = store.open_log()

    def poll(self) -> bool:
        """Fold what is new in the log; returns whether there was anything."""
        before = self.watermark
        newest = self._log.snapshots()[-1:]
        if newest and newest[0].generation != self.generation and not self._start(newest[0]):
            return False
        if self.generation:
            for stored in self._log.read_after(self.watermark, READ_BYTES):
                self._take(stored)
        return self.watermark != before

    def _start(self, record: SnapshotRecord) -> bool:
        """Start with a new generation; False if its snapshot is being removed."""
        try:
            folded = fold_spool(record.directory)
        except SnapshotGone:
            return False
        self.replica, self.watermark, self.generation = folded, record.watermark, record.generation
        self.judge.snapshot(folded.tables)
        return True

    def _take(self, stored: StoredTransaction) -> None:
        touched: set[tuple[str, Key]] = set()
        count = 0
        for chunk in stored.chunks():
            changes = decode_changes(chunk)
            self.replica.apply(changes)
            touched.update(rows_of(changes))
            count += len(changes)
        self.watermark = stored.watermark
        if count:
            changed = "1 change" if count == 1 else f"{count} changes"
            what = f"the transaction of {changed} that follows state {self.judge.reached}"
            self.judge.transaction(self.replica.tables, touched, what)

    def schema(self) -> ConsumerSchema:
        """The tables that consumers have at the head of the log."""
        return LoggedSchema.from_json(self._log.state().schema).consumer

    def position(self) -> Position:
        """The position of the head of the log."""
        return self._log.state().position

    def close(self) -> None:
        """Close the log."""
        self._log.close()
