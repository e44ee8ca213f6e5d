"""A state directory as the pipeline leaves it, written by the pipeline's own parts: a snapshot, then transactions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from changesource_sdk.adapter import Change, Insert, Row, Transaction
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.snapshots import Manifest
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.pipeline.encoding.schema_frames import snapshot_schema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.schema import Column, Table

ISSUES = Table("issue", (Column("id", "text", optional=False), Column("title", "text")), ("id",))


class WrittenState:
    """One table, `issue`; every transaction gets the next position."""

    def __init__(self, store: LogStore, spill_bytes: int = 1 << 23) -> None:
        self.store = store
        self.layout = store.layout.create()
        self.directory = self.layout.root
        self.writer = self.store.open_writer(lambda: time.time_ns() // 1000)
        self._spill_bytes = spill_bytes
        self._segments = 0
        self._position = 0
        self._encoder = self._new_encoder()

    def snapshot(self, rows: Sequence[Row] | Iterable[Row] = (), above: str = "00") -> str:
        """Take a snapshot: a new generation. Its watermark."""
        watermark = self.writer.next_generation(above)
        folder = snapshots.stage(self.layout.spool, watermark)
        before, after = snapshot_schema([ISSUES])
        parts = (
            snapshots.write_frames(folder, 0, before),
            snapshots.write_part(folder, 1, "issue", rows, TableEncoder(ISSUES).inserts),
            snapshots.write_frames(folder, 2, after),
        )
        self._encoder = self._new_encoder()
        schema = self._encoder.schema.to_json()
        now_ms = time.time() * 1000
        path = snapshots.complete(folder, Manifest(watermark, self._position, schema, now_ms, parts))
        self.writer.start_generation(watermark, self._position, schema, path, now_ms)
        self.store.requests.answer_snapshot(watermark)
        return watermark

    def commit(self, *changes: Change) -> str:
        """Append one transaction. Its watermark."""
        return self.commit_all([list(changes)])[0]

    def commit_all(self, transactions: Iterable[Iterable[Change]]) -> list[str]:
        """Append several transactions at once."""
        encoded = []
        for changes in transactions:
            self._position += 1
            encoded.append(self._encoder.encode(Transaction(self._position, changes, time.time() * 1000)))
        return self.writer.append(encoded)

    def insert(self, key: str, title: str = "") -> str:
        """Append a transaction that inserts one issue."""
        return self.commit(Insert("issue", {"id": key, "title": title}))

    def close(self) -> None:
        self.writer.close()

    def _new_encoder(self) -> TransactionEncoder:
        return TransactionEncoder(ConsumerSchema.of([ISSUES]), self._new_segment, self._spill_bytes)

    def _new_segment(self) -> Path:
        self._segments += 1
        return self.layout.segments / f"test-{self._segments}.partial"
