"""Starts and stops the parts of the cache in order: replicator → replica → view syncer → sync server.

The server listens first, so that health checks and status work during a long initial sync; it admits clients once the
view syncer follows the replica. The replicator is a process of its own. It and the view syncer share the replica file;
the replicator announces new versions, and the cache reports how far the change log has been read.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import aiohttp

from reference_cache import memory
from reference_cache.app_client.post import AppPost
from reference_cache.app_client.pusher import Pusher
from reference_cache.app_client.transform import QueryTransformer
from reference_cache.byte_budget import ByteBudget
from reference_cache.config import AppEndpoint, CacheConfig
from reference_cache.errors import CacheError
from reference_cache.replica.stored_catalog import Origin, ReplicaState
from reference_cache.replicator.process import ReplicatorFailed, ReplicatorProcess
from reference_cache.replicator.settings import ReplicatorSettings
from reference_cache.sync_server.access.auth import Authenticator
from reference_cache.sync_server.access.inspectors import Inspectors
from reference_cache.sync_server.connection import ServerServices
from reference_cache.sync_server.metrics import CacheMetrics
from reference_cache.sync_server.outbox import Backlog
from reference_cache.sync_server.rates import MutationLimit
from reference_cache.sync_server.server import SyncServer
from reference_cache.view_syncer.api import SyncerOptions
from reference_cache.view_syncer.cvr.limits import GroupLimits
from reference_cache.view_syncer.syncer import ViewSyncer
from service_kit.logs import event, logger

log = logger("cache.cache")

READ_SECONDS = 0.25
"""How often the replicator gets the read version, so that it can prune its change log, and the replica is checked."""


class Cache:
    """One running cache. Invariant: its port is open from `start` to `stop`; clients are admitted while it is ready."""

    def __init__(self, config: CacheConfig) -> None:
        self._config = config
        self._authenticator = Authenticator(config)
        self._replicator = ReplicatorProcess(_replicator_settings(config))
        # Set while clients are admitted: by `_sync` at first, then by `_watch_replica`.
        self._ready = asyncio.Event()
        # Set when the replicator announces its first version.
        self._has_replica = asyncio.Event()
        # The replicator, the syncer and two watchers; filled by `start`. A task that ends means that the cache failed.
        self._tasks: list[asyncio.Task[None]] = []
        # The four below are set once, by `start`, on the event loop. Requests to the application's endpoints:
        self._session: aiohttp.ClientSession
        # Forwards mutations to the application; None if no mutate URL is configured.
        self._pusher: Pusher | None
        # Reads the replica and pokes the clients.
        self._syncer: ViewSyncer
        # Listens for clients and health checks.
        self._server: SyncServer

    async def start(self) -> int:
        """Listen and start replicating; returns the port in use. Raises `CacheError`."""
        memory.tune()
        config = self._config
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1000))
        query, mutate = self._post(config.query, "ZERO_QUERY_URL"), self._post(config.mutate, "ZERO_MUTATE_URL")
        transformer = QueryTransformer(query)
        budget = ByteBudget(config.intake_group_bytes, config.intake_bytes)
        self._pusher = Pusher(mutate, budget) if mutate is not None else None
        self._syncer = ViewSyncer(_syncer_options(config), transformer)
        services = ServerServices(
            config=config,
            syncer=self._syncer,
            transformer=transformer,
            pusher=self._pusher,
            authenticator=self._authenticator,
            metrics=CacheMetrics(),
            inspectors=Inspectors(config),
            budget=budget,
            backlog=Backlog(config.send_buffers_bytes),
            mutation_limit=_mutation_limit(config),
        )
        self._server = SyncServer(services, self._ready, self._replication_status)
        try:
            port = await self._server.start()
        except CacheError:
            await self._session.close()
            raise
        self._replicator.on_version(self._note_version)
        self._tasks = [
            asyncio.create_task(each)
            for each in (self._replicator.run(), self._sync(), self._report_read(), self._watch_replica())
        ]
        return port

    async def wait_until_ready(self) -> None:
        """Return when clients are admitted; raises `CacheError` if a part of the cache fails first."""
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait((ready, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        self._raise_if_ended()

    async def wait_for_failure(self) -> None:
        """Wait until a part of the cache fails; raises its `CacheError`."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        self._raise_if_ended()

    async def stop(self) -> None:
        """Stop the sync server, then the replicator, then the view syncer."""
        if self._pusher is not None:
            await self._pusher.stop()
        await self._server.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._syncer.stop()
        await self._session.close()

    def _post(self, endpoint: AppEndpoint, variable: str) -> AppPost | None:
        if not endpoint.urls:
            return None
        return AppPost(self._session, endpoint, variable, self._config.schema, self._config.app_id)

    def _note_version(self, _: ReplicaState) -> None:
        self._has_replica.set()
        self._syncer.notify()

    async def _sync(self) -> None:
        # The replicator opens the file first: it checks that it is a replica, and of this app.
        await self._has_replica.wait()
        await self._syncer.start()
        self._ready.set()
        event(log, logging.INFO, "ready", version=self._syncer.version)
        await asyncio.Event().wait()

    async def _report_read(self) -> None:
        """Let the replicator prune the changes that the view syncer has read."""
        await self._ready.wait()
        reported = None
        while True:
            read = self._syncer.read_version
            if read is not None and read != reported:
                self._replicator.forget_changes(read)
                reported = read
            await asyncio.sleep(READ_SECONDS)

    async def _watch_replica(self) -> None:
        """Refuse clients while the replica file is missing."""
        await self._ready.wait()
        while True:
            await asyncio.sleep(READ_SECONDS)
            if self._syncer.has_replica == self._ready.is_set():
                continue
            if self._ready.is_set():
                self._ready.clear()
                event(log, logging.ERROR, "not ready: the replica is gone", file=self._config.replica_file)
            else:
                self._ready.set()
                event(log, logging.INFO, "ready again", version=self._syncer.version)

    def _replication_status(self) -> dict[str, Any]:
        status = self._replicator.status()
        return {"replication": {**status.to_json(), "lag_ms": status.lag_ms}, "unusedSettings": self._config.unused}

    def _raise_if_ended(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                with suppress(asyncio.CancelledError):
                    _raise_for(task.exception(), self._config)


def _raise_for(error: BaseException | None, config: CacheConfig) -> None:
    if isinstance(error, ReplicatorFailed):
        fix = "remove the file to sync again, or point ZERO_REPLICA_FILE elsewhere"
        raise CacheError(error.code, str(error), str(config.replica_file), fix) from None
    if error is not None:
        raise error


def _replicator_settings(config: CacheConfig) -> ReplicatorSettings:
    origin = Origin(config.app_id, config.shard_num, frozenset(config.publications))
    return ReplicatorSettings(config.upstream_db, config.replica_file.absolute(), origin, config.auto_reset)


def _mutation_limit(config: CacheConfig) -> MutationLimit | None:
    if config.mutation_limit is None:
        return None
    return MutationLimit(config.mutation_limit, config.mutation_limit_window_ms / 1000)


def _syncer_options(config: CacheConfig) -> SyncerOptions:
    return SyncerOptions(
        config.replica_file.absolute(),
        config.cvr_file.absolute(),
        config.app_id,
        config.shard_num,
        time_slice=config.yield_threshold_ms / 1000,
        hydration_seconds=config.hydration_seconds,
        hydration_rows=config.hydration_rows,
        push_seconds=config.push_seconds,
        forget_groups_after=config.forget_group_hours * 3600,
        takes_credentials=config.takes_credentials,
        refuse_ad_hoc_queries=config.refuse_ad_hoc_queries,
        limits=GroupLimits(config.group_queries, config.group_query_bytes, config.group_clients),
        records_bytes=config.records_bytes,
    )
