"""A sync server over a scripted syncer, on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from reference_cache.app_client.post import AppPost
from reference_cache.app_client.pusher import Pusher
from reference_cache.app_client.transform import QueryTransformer
from reference_cache.byte_budget import ByteBudget
from reference_cache.config import CacheConfig
from reference_cache.sync_server import connection
from reference_cache.sync_server.access.auth import Authenticator
from reference_cache.sync_server.access.inspectors import Inspectors
from reference_cache.sync_server.connection import ServerServices
from reference_cache.sync_server.metrics import CacheMetrics
from reference_cache.sync_server.outbox import Backlog
from reference_cache.sync_server.server import SyncServer
from tests.reference_cache.sync_server.scripted_syncer import ScriptedSyncer


class Served:
    """A running server, its script, and where it listens."""

    def __init__(
        self, server: SyncServer, syncer: ScriptedSyncer, services: ServerServices, ready: asyncio.Event, port: int
    ) -> None:
        self.server, self.syncer, self.services, self.ready, self.port = server, syncer, services, ready, port


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    # Raw clients take errors as soon as they come; the test that is about the delay sets it again.
    monkeypatch.setattr(connection, "SETTLE_SECONDS", 0.0)
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Served:
            config = CacheConfig(upstream_db="ws://unused", port=0, **settings)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            syncer = ScriptedSyncer()
            budget = ByteBudget(config.intake_group_bytes, config.intake_bytes)
            services = ServerServices(
                config,
                syncer,
                QueryTransformer(_post(session, config, "query")),
                _pusher(session, config, budget),
                Authenticator(config),
                CacheMetrics(),
                Inspectors(config),
                budget,
                Backlog(config.send_buffers_bytes),
            )
            ready = asyncio.Event()
            ready.set()
            server = SyncServer(services, ready)
            served = Served(server, syncer, services, ready, await server.start())
            stack.push_async_callback(server.stop)
            if services.pusher is not None:
                stack.push_async_callback(services.pusher.stop)
            return served

        yield start


def _post(session: aiohttp.ClientSession, config: CacheConfig, kind: str) -> AppPost | None:
    endpoint = config.query if kind == "query" else config.mutate
    variable = f"ZERO_{kind.upper()}_URL"
    return AppPost(session, endpoint, variable, config.schema, config.app_id, backoff=0.001) if endpoint.urls else None


def _pusher(session: aiohttp.ClientSession, config: CacheConfig, budget: ByteBudget) -> Pusher | None:
    post = _post(session, config, "mutate")
    return Pusher(post, budget) if post is not None else None
