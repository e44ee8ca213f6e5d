"""What every consumer has acknowledged: in memory immediately, on disk at a short interval.

A busy consumer acknowledges thousands of commits a second, and each acknowledgement includes the ones before. So only
the newest per consumer is written, in a thread. After a crash the last ones may be missing; then more of the log is
kept than needed, never less.
"""

from __future__ import annotations

import asyncio
from time import time

from changesource_sdk.changelog.coordination.consumers import ConsumerKey
from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.errors import ChangesourceError
from protocol.stream.handshake import Handshake

#: Seconds between two writes.
FLUSH_INTERVAL = 0.5


class AckStore:
    """The newest acknowledgement per consumer. Invariant: the disk is never ahead of what was received."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        # Not written to disk yet; `note` adds, `flush` takes all and puts them back on failure. Event loop only.
        self._pending: dict[ConsumerKey, str] = {}

    def note(self, handshake: Handshake, watermark: str) -> None:
        """Record that this consumer has everything up to `watermark`."""
        key = consumer_key(handshake)
        self._pending[key] = max(watermark, self._pending.get(key, ""))

    async def run(self) -> None:
        """Flush every `FLUSH_INTERVAL` until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_INTERVAL)
            await self.flush()

    async def flush(self) -> None:
        """Write the pending acknowledgements; on failure raises `ChangesourceError` and keeps them."""
        pending, self._pending = self._pending, {}
        try:
            await asyncio.to_thread(self._store_all, pending)
        except ChangesourceError:
            self._pending = pending | self._pending
            raise

    def _store_all(self, pending: dict[ConsumerKey, str]) -> None:
        now_ms = time() * 1000
        for key, watermark in pending.items():
            self._coordination.acknowledge(key, watermark, now_ms)


def consumer_key(handshake: Handshake) -> ConsumerKey:
    """Identifies a consumer across connections: app, shard, and the initial sync of its replica."""
    return ConsumerKey(handshake.app_id, handshake.shard_num, handshake.replica_version or "")
