"""A consumer of the log: folds the snapshot and every transaction after it, and lets the judge see each state.

It reads the log as an endpoint does, so it sees exactly what any cache would be sent, over restarts of the pipeline and
new generations of the log.
"""

from __future__ import annotations

from changesource_sdk.changelog.log import SnapshotRecord, Stored
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.testing.folding import FoldedTables, Key, rows_of
from protocol.changes import Change
from protocol.codec import decode_downstream
from protocol.framing import unframe
from protocol.messages import Data

READ_BYTES = 4 << 20


class Witness:
    """One consumer. Invariant: `replica` is the log's state at `watermark`, and the judge saw how it came to be."""

    def __init__(self, store: LogStore, judge: Judge) -> None:
        self.judge = judge
        self.replica = FoldedTables()
        self.watermark = ""
        self.generation = 0
        self._log = store.open_reader()

    def look(self) -> bool:
        """Take in what is new in the log; whether there was anything."""
        before = self.watermark
        newest = self._log.snapshots()[-1:]
        if newest and newest[0].generation != self.generation and not self._start(newest[0]):
            return False
        if self.generation:
            for stored in self._log.read_after(self.watermark, READ_BYTES):
                self._take(stored)
        return self.watermark != before

    def _start(self, record: SnapshotRecord) -> bool:
        """Begin with a new generation; False if it is being replaced just now."""
        folded = FoldedTables()
        try:
            with snapshots.reading(record.directory):
                for block in snapshots.blocks(record.directory, snapshots.read_manifest(record.directory)):
                    folded.apply(changes_of(block))
        except SnapshotGone:
            return False
        self.replica, self.watermark, self.generation = folded, record.watermark, record.generation
        self.judge.snapshot(folded.tables)
        return True

    def _take(self, stored: Stored) -> None:
        touched: set[tuple[str, Key]] = set()
        count = 0
        for chunk in stored.chunks():
            changes = changes_of(chunk)
            self.replica.apply(changes)
            touched.update(rows_of(changes))
            count += len(changes)
        self.watermark = stored.watermark
        if count:
            changed = "1 change" if count == 1 else f"{count} changes"
            what = f"the transaction of {changed} that follows state {self.judge.reached}"
            self.judge.transaction(self.replica.tables, touched, what)

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()


def changes_of(frames: bytes) -> list[Change]:
    """The changes in a run of frames."""
    messages = map(decode_downstream, unframe(frames))
    return [message.change for message in messages if isinstance(message, Data)]
