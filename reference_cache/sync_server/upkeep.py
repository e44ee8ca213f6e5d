"""Periodic work on open connections, in one pass over all of them.

A client that was sent nothing for six seconds gets a pong, so that it does not give up a cache that is busy with a
long query. A client that does not read, or whose token has expired, is dropped. Credentials are validated again, and
named queries transformed again, at their intervals. One pass instead of a timer per connection keeps ten thousand idle
sockets cheap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from protocol.sync.errors import SyncError
from reference_cache.config import CacheConfig
from reference_cache.sync_server.connection import Retransform, SyncConnection
from reference_cache.view_syncer.api import Transformer
from service_kit.logs import event, logger

log = logger("cache.upkeep")

SWEEP_SECONDS = 1.0
SILENT_SECONDS = 6.0
SLICE = 500
"""How many connections are checked before other tasks of the event loop run."""


class Upkeep:
    """Checks the connections that `clients` returns. Invariant: a client is revalidated by one task at a time."""

    def __init__(
        self, clients: Callable[[], Collection[SyncConnection]], transformer: Transformer, config: CacheConfig
    ) -> None:
        self._clients = clients
        self._transformer = transformer
        self._revalidate = config.revalidate_seconds
        self._retransform = config.retransform_seconds if config.query_urls else 0.0
        # Client group id -> when its named queries were last transformed; replaced by each sweep.
        self._transformed: dict[str, float] = {}
        # Running revalidations; a task removes itself.
        self._checks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Sweep every `SWEEP_SECONDS` until cancelled."""
        try:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                await self._sweep_anyway()
        finally:
            for task in self._checks:
                task.cancel()

    async def _sweep_anyway(self) -> None:
        try:
            await self.sweep(asyncio.get_running_loop().time())
        except Exception:
            # A bug: log the trace, and sweep again.
            log.exception("upkeep failed")

    async def sweep(self, now: float) -> None:
        """Check every connection once; `now` on the loop's clock."""
        groups: dict[str, float] = {}
        for number, client in enumerate(list(self._clients())):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if client.outbox.is_too_slow():
                client.drop()
                continue
            client.check_expiry()
            client.keep_alive(SILENT_SECONDS)
            if client.is_synced:
                self._check_credentials(client, now)
                self._retransform_group(client, now, groups)
        self._transformed = groups

    def _check_credentials(self, client: SyncConnection, now: float) -> None:
        if self._revalidate > 0 and now - client.validated_at >= self._revalidate:
            client.validated_at = now
            task = asyncio.create_task(self._validate(client))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _validate(self, client: SyncConnection) -> None:
        try:
            await self._transformer.validate(client.credentials)
        except SyncError as error:
            if error.refuses_credentials:
                client.fail(error)
            else:
                # The application failed; the client stays, and is validated again at the next interval.
                event(log, logging.WARNING, "credentials could not be checked", why=error.message)

    def _retransform_group(self, client: SyncConnection, now: float, groups: dict[str, float]) -> None:
        group = client.request.client_group_id
        if group in groups:
            return
        groups[group] = self._transformed.get(group, now)
        if self._retransform > 0 and now - groups[group] >= self._retransform:
            groups[group] = now
            client.do(Retransform())
