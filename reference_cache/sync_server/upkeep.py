"""What is done for open connections from time to time, in one pass over all of them.

A client that has heard nothing for six seconds gets a pong, so that a cache busy with a long query is not taken for
dead; one that does not read is dropped, and so is one whose token has expired; credentials are checked again with the
application, and a group's named queries are asked for again, at their intervals. One pass for everybody instead of
timers each keeps ten thousand idle sockets cheap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from protocol.sync.errors import SyncError
from reference_cache.config import CacheConfig
from reference_cache.sync_server.client import Client, Retransform
from reference_cache.view_syncer.api import Transformer
from service_kit.logs import event, logger

log = logger("cache.upkeep")

SWEEP_SECONDS = 1.0
SILENT_SECONDS = 6.0
AT_ONCE = 500
"""How many connections are looked at before others get their turn."""


class Upkeep:
    """Looks after the connections that `clients` gives. Invariant: a client is revalidated by one task at a time."""

    def __init__(
        self, clients: Callable[[], Collection[Client]], transformer: Transformer, config: CacheConfig
    ) -> None:
        self._clients = clients
        self._transformer = transformer
        self._revalidate = config.revalidate_seconds
        self._retransform = config.retransform_seconds if config.query_urls else 0.0
        self._transformed: dict[str, float] = {}  # group -> when its queries were last asked for
        self._checks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled."""
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
            # A bug of ours: the trace is for the bug report, and the next pass is due all the same.
            log.exception("upkeep failed")

    async def sweep(self, now: float) -> None:
        """Look at every connection once."""
        groups: dict[str, float] = {}
        for number, client in enumerate(list(self._clients())):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if client.outbox.is_too_slow():
                client.drop()
                continue
            client.check_expiry()
            client.keep_alive(SILENT_SECONDS)
            if client.is_synced:
                self._check_credentials(client, now)
                self._ask_again(client, now, groups)
        self._transformed = groups

    def _check_credentials(self, client: Client, now: float) -> None:
        if self._revalidate > 0 and now - client.validated_at >= self._revalidate:
            client.validated_at = now
            task = asyncio.create_task(self._validate(client))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _validate(self, client: Client) -> None:
        try:
            await self._transformer.validate(client.credentials)
        except SyncError as error:
            if error.refuses_credentials:
                client.fail(error)
            else:
                # The application has trouble of its own; the client is asked about again at the next interval.
                event(log, logging.WARNING, "credentials could not be checked", why=error.message)

    def _ask_again(self, client: Client, now: float, groups: dict[str, float]) -> None:
        group = client.asked.client_group_id
        if group in groups:
            return
        groups[group] = self._transformed.get(group, now)
        if self._retransform > 0 and now - groups[group] >= self._retransform:
            groups[group] = now
            client.do(Retransform())
