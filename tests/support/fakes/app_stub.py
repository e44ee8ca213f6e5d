"""An application server whose answers a test writes down beforehand; it remembers every request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[Any], Any]


@dataclass
class Request:
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class AppStub:
    """`answer` makes a JSON value, or a `web.Response`, of a request's body; `gate` and `delay` hold answers back."""

    url: str = ""
    answer: Answer = lambda body: {}
    delay: Callable[[Any], float] = lambda body: 0.0
    requests: list[Request] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    under_way: int = 0
    most_under_way: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        async with self.arrived:
            self.requests.append(Request(request.path, dict(request.query), dict(request.headers), body))
            self.arrived.notify_all()
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
            await asyncio.sleep(self.delay(body))
            made = self.answer(body)
        finally:
            self.under_way -= 1
        return made if isinstance(made, web.StreamResponse) else web.json_response(made)

    async def wait_for_requests(self, count: int) -> None:
        async with asyncio.timeout(60), self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)


@asynccontextmanager
async def app_stub() -> AsyncIterator[AppStub]:
    stub = AppStub()
    stub.gate.set()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/{name:.*}", stub.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stub
    finally:
        stub.gate.set()
        await runner.cleanup()
