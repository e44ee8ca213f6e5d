"""What subscriptions read: the log, its shared tail, the snapshots in the spool, and the tables every app needs.

The blocking half (SQLite, files) runs in threads; the event loop only awaits. Nothing here depends on the pipeline
being alive: the retained log and snapshots are served without it, and what must come from it is asked for by a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from changesource_sdk.changelog import snapshots
from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.log import LogReader, SnapshotRecord, Stored
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.endpoint.live_tail import LiveTail
from changesource_sdk.endpoint.plan import Plan, Retained, decide
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.pipeline.consumer_schema import ConsumerSchema
from changesource_sdk.system_tables import Permissions, system_frames
from protocol.handshake import Handshake

REPLACED = "snapshot-replaced"


class Source:
    """Read access to one log. Invariant: it never writes to the log or the spool."""

    def __init__(self, store: LogStore, reader: LogReader, tail: LiveTail, permissions: Permissions) -> None:
        self.tail = tail
        self.reader = reader
        self._store = store
        self._permissions = permissions

    async def plan(self, handshake: Handshake) -> Plan:
        """What to do with a consumer, from what is retained at this moment."""
        return await asyncio.to_thread(self._plan, handshake)

    def _plan(self, handshake: Handshake) -> Plan:
        request = self._store.requests.pending_snapshot()
        return decide(handshake, self.retained(), request.above if request else None)

    def retained(self) -> Retained | None:
        """What the log holds; None before its first snapshot. Blocking."""
        state = self.reader.state()
        known = tuple(record.watermark for record in self.reader.snapshots())
        return Retained(state.generation, known, state.oldest, state.head) if known else None

    async def read_after(self, watermark: str, max_bytes: int) -> list[Stored] | None:
        """The transactions that follow, from the log itself; None if the log has started over meanwhile."""
        return await asyncio.to_thread(self._read_after, watermark, max_bytes)

    def _read_after(self, watermark: str, max_bytes: int) -> list[Stored] | None:
        found = self.reader.read_after(watermark, max_bytes)
        # Looked at last, for the same reason as in the shared tail.
        return None if self.reader.oldest() > watermark else found

    def open_snapshot(self, handshake: Handshake, watermark: str) -> tuple[int, Iterator[bytes]]:
        """One initial sync: its rows, and its frames in pieces that end at frame boundaries. Blocking, both."""
        record = self._record(watermark)
        self._store.fetch(record)
        with self._reading(record):
            manifest = snapshots.read_manifest(record.directory)
        return manifest.rows, self._chunks(handshake, record, manifest)

    def _chunks(self, handshake: Handshake, record: SnapshotRecord, manifest: snapshots.Manifest) -> Iterator[bytes]:
        schema = ConsumerSchema.from_json(record.schema)
        yield begin_frame(record.watermark)
        yield from system_frames(handshake.app_id, handshake.shard_num, schema, self._permissions)
        with self._reading(record):
            yield from snapshots.blocks(record.directory, manifest)
        yield commit_frame(record.watermark, record.created_ms)

    @contextmanager
    def _reading(self, record: SnapshotRecord) -> Iterator[None]:
        """Keep the files of a snapshot; if they are gone because a newer one took its place, say so."""
        try:
            with snapshots.reading(record.directory):
                yield
        except SnapshotGone as error:
            if self.reader.snapshots()[-1:] != [record]:
                raise _replaced(record.watermark) from error
            raise

    def _record(self, watermark: str) -> SnapshotRecord:
        for record in self.reader.snapshots():
            if record.watermark == watermark:
                return record
        raise _replaced(watermark)

    async def ask_for_snapshot(self, above: str, reason: str) -> None:
        """Ask the pipeline for a snapshot above a watermark that a consumer has seen."""
        await asyncio.to_thread(self._store.requests.ask_snapshot, above, reason)

    async def mend(self, watermark: str, damage: SnapshotGone) -> None:
        """Frames after `watermark` cannot be read back: if they should be there, have the pipeline start over.

        If the log has started over already, they are gone for a good reason and nothing needs mending.
        """
        if damage.code == REPLACED:
            return
        retained = await asyncio.to_thread(self.retained)
        if retained is not None and watermark >= retained.oldest:
            await self.ask_for_snapshot(retained.head, f"stored frames are damaged: {damage.where}")


def _replaced(watermark: str) -> SnapshotGone:
    return SnapshotGone(REPLACED, f"snapshot {watermark} was replaced by a newer one", fix="connect again")
