"""A view syncer that only records its calls, and fails on request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from protocol.sync.errors import SyncError
from protocol.sync.messages import InitConnection, Inspection, QueryPatch
from reference_cache.view_syncer.api import ClientInfo, Downstream, Outgoing, SyncerStatus

FIRST_POKE = Outgoing(
    (b'["pokeStart",{"pokeID":"01","baseCookie":null}]', b'["pokeEnd",{"pokeID":"01","cookie":"01"}]')
)


class ScriptedConnection:
    def __init__(self, syncer: ScriptedSyncer, client: ClientInfo) -> None:
        self.syncer, self.client = syncer, client
        self.deleted_clients: Sequence[str] = ()

    async def change_desired_queries(self, patch: Sequence[QueryPatch]) -> None:
        await self.syncer.called("change", self.client, [each.op for each in patch])

    async def delete_clients(self, client_ids: Sequence[str]) -> None:
        await self.syncer.called("delete", self.client, list(client_ids))

    async def update_auth(
        self, credentials: Any, auth_data: Mapping[str, Any] | None = None, secret: str | None = None
    ) -> None:
        await self.syncer.called("auth", self.client, credentials.token)

    async def transform_again(self) -> None:
        await self.syncer.called("transform", self.client, None)

    async def inspect(self, question: Inspection) -> Any:
        await self.syncer.called("inspect", self.client, question.op)
        return {"version": "1"}

    async def close(self) -> None:
        await self.syncer.called("close", self.client, None)


class ScriptedSyncer:
    """`fault` is raised by the next call that is not `close`; `gate` holds calls back while it is cleared."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.clients: dict[str, tuple[ClientInfo, Downstream]] = {}
        self.fault: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.changed = asyncio.Condition()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def notify(self) -> None: ...

    def status(self) -> SyncerStatus:
        return SyncerStatus(version="01", clients=len(self.clients))

    async def connect(self, client: ClientInfo, init: InitConnection, downstream: Downstream) -> ScriptedConnection:
        await self.called("connect", client, [each.op for each in init.desired_queries_patch])
        self.clients[client.client_id] = (client, downstream)
        downstream.send(FIRST_POKE)
        return ScriptedConnection(self, client)

    async def called(self, what: str, client: ClientInfo, details: Any) -> None:
        if what != "close":
            await self.gate.wait()
            fault, self.fault = self.fault, None
            if fault is not None:
                raise fault
        async with self.changed:
            self.calls.append((what, client.client_id, details))
            self.changed.notify_all()

    async def wait_for(self, *call: Any) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: call in self.calls)

    def send(self, client_id: str, *frames: bytes) -> None:
        self.clients[client_id][1].send(Outgoing(frames))

    def fail(self, client_id: str, error: SyncError) -> None:
        self.clients[client_id][1].fail(error)
