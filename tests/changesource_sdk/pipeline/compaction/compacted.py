"""A log in a state directory, its compaction, and what consumers hold before and after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.log import SnapshotRecord
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.pipeline.compaction.job import Lane, compact
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.pipeline.snapshot.take import take_snapshot
from tests.changesource_sdk.pipeline.sqlite_replica import SqliteReplica

START_US = 1_700_000_000_000_000


class CompactedLog:
    """One generation, written and compacted on demand."""

    def __init__(
        self, state: Path, adapter: Adapter, store: LogStore | None = None, spill_bytes: int = 1 << 30
    ) -> None:
        self.store = store or SqliteLogStore(state)
        self.layout = self.store.layout
        self.adapter = adapter
        self.writer: LogWriter = self.store.open_writer(lambda: START_US)
        self.reader = self.store.open_log()
        take_snapshot(adapter, self.writer, self.layout, lambda: 1.0)
        self._segments = 0
        self._encoder = TransactionEncoder(
            ConsumerSchema.from_json(self.writer.state().schema), self._segment, spill_bytes
        )

    def _segment(self) -> Path:
        self._segments += 1
        return self.layout.segments / f"test-{self._segments}.frames"

    def follow(self) -> None:
        """Append what the adapter has after the log's position."""
        self.writer.append([*map(self._encoder.encode, self.adapter.changes(self.writer.state().position))])

    def compact(
        self,
        lane: Lane | None = None,
        range_bytes: int = 500,
        bucket_bytes: int = 1000,
        store: LogStore | None = None,
    ) -> str | None:
        """Compact and register; small shares and buckets, so that there are several."""
        compact(
            store or self.store,
            lane or LocalLane(),
            lambda: 2.0,
            range_bytes=range_bytes,
            bucket_bytes=bucket_bytes,
        )
        return self.store.handoff.take(self.writer)

    def snapshot_frames(self, record: SnapshotRecord) -> Iterator[bytes]:
        yield from snapshots.blocks(record.directory, snapshots.read_manifest(record.directory))

    def replica_from(self, record: SnapshotRecord) -> SqliteReplica:
        """A consumer that began with this snapshot and followed to the head."""
        replica = SqliteReplica()
        replica.take(self.snapshot_frames(record))
        for stored in self.reader.read_after(record.watermark, 1 << 30):
            replica.take(stored.chunks())
        return replica

    def newest(self) -> SnapshotRecord:
        return self.reader.snapshots()[-1]

    def close(self) -> None:
        self.writer.close()
        self.reader.close()
        self.store.close()
