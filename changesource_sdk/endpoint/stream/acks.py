"""What every consumer has acknowledged, in memory at once and on disk soon after.

A busy consumer acknowledges thousands of commits a second; each overwrites the one before, so only the newest per
consumer is written, in a thread, at a short interval. Losing the last of them in a crash keeps a little more of the log
than needed, never less.
"""

from __future__ import annotations

import asyncio
from time import time

from changesource_sdk.changelog.subscribers import SubscriberKey, Subscribers
from changesource_sdk.errors import ChangesourceError
from protocol.handshake import Handshake

FLUSH_INTERVAL = 0.5


class AckStore:
    """The newest ack per consumer. Invariant: what is on disk never runs ahead of what was received."""

    def __init__(self, store: Subscribers) -> None:
        self._store = store
        self._pending: dict[SubscriberKey, str] = {}

    def note(self, handshake: Handshake, watermark: str) -> None:
        """Remember that this consumer has everything up to `watermark`."""
        key = subscriber_key(handshake)
        self._pending[key] = max(watermark, self._pending.get(key, ""))

    async def run(self) -> None:
        """Write what was noted, again and again, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_INTERVAL)
            await self.flush()

    async def flush(self) -> None:
        """Write what was noted since the last time; kept for the next time if it cannot be written."""
        pending, self._pending = self._pending, {}
        try:
            await asyncio.to_thread(self._store_all, pending)
        except ChangesourceError:
            self._pending = pending | self._pending
            raise

    def _store_all(self, pending: dict[SubscriberKey, str]) -> None:
        now_ms = time() * 1000
        for key, watermark in pending.items():
            self._store.acknowledge(key, watermark, now_ms)


def subscriber_key(handshake: Handshake) -> SubscriberKey:
    """Who a consumer is across connections: its app, its shard, and the snapshot its replica stems from."""
    return SubscriberKey(handshake.app_id, handshake.shard_num, handshake.replica_version or "")
