"""A cache that says what a test tells it to: every connection a client makes is the test's to talk on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from protocol.sync.handshake import ConnectRequest, parse_request

SECONDS = 60.0


class Visit:
    """One connection of a client."""

    def __init__(self, socket: ServerConnection, request: ConnectRequest, target: str) -> None:
        self.socket = socket
        self.request = request
        self.target = target
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.ended = asyncio.Event()

    @property
    def init(self) -> dict[str, Any]:
        """The body of the first message, which came with the handshake."""
        assert isinstance(self.request.init, list)
        body: dict[str, Any] = self.request.init[1]
        return body

    async def say(self, tag: str, body: object) -> None:
        await self.socket.send(json.dumps([tag, body]))

    async def greet(self) -> Visit:
        await self.say("connected", {"wsid": self.request.ws_id})
        return self

    async def poke(self, base: str | None, cookie: str, **fields: Any) -> None:
        await self.say("pokeStart", {"pokeID": cookie, "baseCookie": base})
        if fields:
            await self.say("pokePart", {"pokeID": cookie, **fields})
        await self.say("pokeEnd", {"pokeID": cookie, "cookie": cookie})

    async def hear(self, tag: str, where: Callable[[Any], bool] = lambda body: True) -> Any:
        """The body of the next message with this tag."""
        async with asyncio.timeout(SECONDS):
            while True:
                heard, body = await self.heard.get()
                if heard == tag and where(body):
                    return body

    async def fail(self, kind: str, **details: Any) -> None:
        """Tell an error and close, as a cache does."""
        await self.say("error", {"kind": kind, "message": f"it is {kind}", "origin": "zeroCache", **details})
        await self.socket.close()


class ScriptedCache:
    """Where clients connect to."""

    def __init__(self) -> None:
        self.url = ""
        self._visits: asyncio.Queue[Visit] = asyncio.Queue()

    async def visit(self) -> Visit:
        """The next connection, not yet greeted."""
        async with asyncio.timeout(SECONDS):
            return await self._visits.get()

    async def handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        offered = socket.request.headers["Sec-WebSocket-Protocol"]
        visit = Visit(socket, parse_request(socket.request.path, offered), socket.request.path)
        self._visits.put_nowait(visit)
        try:
            async for text in socket:
                visit.heard.put_nowait(json.loads(text))
        except ConnectionClosed:
            pass
        finally:
            visit.ended.set()


@asynccontextmanager
async def scripted_cache() -> AsyncIterator[ScriptedCache]:
    cache = ScriptedCache()
    async with serve(
        cache.handle, "127.0.0.1", 0, select_subprotocol=lambda _, offered: offered[0], compression=None
    ) as server:
        (socket, *_) = server.sockets
        cache.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        yield cache
