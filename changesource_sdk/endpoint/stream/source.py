"""What subscriptions read: the log, its shared tail, the snapshots in the spool, and Zero's own tables.

Blocking work (SQLite, files) runs in threads; the event loop only awaits. Nothing here needs a running pipeline: the
retained log and snapshots are served without it, and new snapshots are requested through the log store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from changesource_sdk.changelog.coordination.consumers import highest_held
from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.changelog.log import Log, SnapshotRecord, StoredTransaction
from changesource_sdk.changelog.reading import has
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.endpoint.stream.initial_sync import InitialSync
from changesource_sdk.endpoint.stream.live_tail import LiveTail
from changesource_sdk.endpoint.stream.plan import ConsumerRecord, Plan, Retained, decide
from changesource_sdk.endpoint.stream.system_frames import system_frames
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.system_tables import Permissions
from protocol.stream.handshake import Handshake

REPLACED = "snapshot-replaced"
#: Seconds between two requests for a snapshot, so that no failure makes the pipeline read the upstream repeatedly.
REQUEST_INTERVAL = 30.0


class SubscriptionSource:
    """Read access to one log. Invariant: it never writes to the log or the spool, only to the record of consumers."""

    def __init__(
        self,
        log_store: LogStore,
        reader: Log,
        coordination: Coordination,
        tail: LiveTail,
        permissions: Permissions,
    ) -> None:
        self.tail = tail
        self.reader = reader
        self._log_store = log_store
        self._coordination = coordination
        self._permissions = permissions
        # When the next snapshot may be requested, on the monotonic clock; written by `ask_for_snapshot` on the loop.
        self._next_request = 0.0

    async def plan(self, handshake: Handshake) -> Plan:
        """Decide what to do with a consumer, from what is retained at this moment."""
        return await asyncio.to_thread(self._plan, handshake)

    def _plan(self, handshake: Handshake) -> Plan:
        request = self._log_store.requests.pending_snapshot()
        record = self._consumer_record(handshake)
        return decide(handshake, self.retained(), request.above if request else None, record)

    def _consumer_record(self, handshake: Handshake) -> ConsumerRecord:
        known = self._coordination.consumers(handshake.app_id, handshake.shard_num)
        versions = frozenset(each.key.replica_version for each in known)
        last = handshake.last_watermark
        return ConsumerRecord(versions, highest_held(known), last is not None and has(self.reader, last))

    def retained(self) -> Retained | None:
        """What the log retains; None before its first snapshot. Blocking."""
        state = self.reader.state()
        known = tuple(record.watermark for record in self.reader.snapshots())
        return Retained(state.generation, known, state.oldest, state.head) if known else None

    async def read_after(self, watermark: str, max_bytes: int) -> list[StoredTransaction] | None:
        """The transactions after `watermark`, from the log; None if the log has been reset."""
        return await asyncio.to_thread(self._read_after, watermark, max_bytes)

    def _read_after(self, watermark: str, max_bytes: int) -> list[StoredTransaction] | None:
        transactions = self.reader.read_after(watermark, max_bytes)
        # Read last, for the same reason as in the shared tail.
        return None if self.reader.state().oldest > watermark else transactions

    def open_initial_sync(self, handshake: Handshake, snapshot: str) -> tuple[InitialSync, Iterator[bytes]]:
        """An initial sync from the snapshot at this watermark, and its frames in chunks that end at frame boundaries.

        On return its version is issued, and the log is retained from the snapshot on. Blocking, and so is each chunk.
        """
        record = self._record(snapshot)
        self._log_store.files.fetch(record.directory)
        with self._reading(record):
            manifest = snapshots.read_manifest(record.directory)
        state, now_ms = self.reader.state(), time.time() * 1000
        version = self._coordination.issue(
            handshake.app_id, handshake.shard_num, state.head, held=record.watermark, now_ms=now_ms
        )
        sync = InitialSync(version, record.watermark, state.head, manifest.rows)
        schema = ConsumerSchema.from_json(state.schema)
        own_tables = system_frames(handshake.app_id, handshake.shard_num, schema, self._permissions)
        return sync, sync.chunks(self._blocks(record, manifest), self._read_on, own_tables, now_ms)

    def _blocks(self, record: SnapshotRecord, manifest: snapshots.Manifest) -> Iterator[bytes]:
        with self._reading(record):
            yield from snapshots.blocks(record.directory, manifest)

    def _read_on(self, watermark: str, max_bytes: int) -> list[StoredTransaction]:
        """The transactions after `watermark`, at least one; raises `SnapshotGone` if the log has been reset."""
        transactions = self._read_after(watermark, max_bytes)
        if not transactions:
            raise _replaced(watermark)
        return transactions

    @contextmanager
    def _reading(self, record: SnapshotRecord) -> Iterator[None]:
        """Keep a snapshot's files from being deleted; raises `SnapshotGone` with code `REPLACED` if they were."""
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
        """Request a snapshot above a watermark, unless one was requested within `REQUEST_INTERVAL`."""
        now = time.monotonic()
        if now < self._next_request:
            return
        await asyncio.to_thread(self._log_store.requests.ask_snapshot, above, reason)
        self._next_request = now + REQUEST_INTERVAL

    async def mend(self, watermark: str, damage: SnapshotGone) -> None:
        """Request a new snapshot because frames after `watermark` cannot be read, unless the log was reset since."""
        if damage.code == REPLACED:
            return
        retained = await asyncio.to_thread(self.retained)
        if retained is not None and watermark >= retained.oldest:
            await self.ask_for_snapshot(retained.head, f"stored frames are damaged: {damage.where}")


def _replaced(watermark: str) -> SnapshotGone:
    return SnapshotGone(REPLACED, f"snapshot {watermark} was replaced by a newer one", fix="connect again")
