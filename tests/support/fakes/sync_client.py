"""A raw client of the sync protocol: says exactly what a test tells it to, and shows every frame it gets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from protocol.sync.handshake import encode_subprotocol

SECONDS = 60.0
Message = list[Any]


class SyncClient:
    """One socket. `frames` holds everything received so far."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[Message] = []

    async def say(self, tag: str, body: object) -> None:
        await self.socket.send(json.dumps([tag, body]))

    async def hear(self, *tags: str, where: Callable[[Any], bool] = lambda body: True) -> Any:
        """The body of the next message with one of these tags, whatever comes before it."""
        async with asyncio.timeout(SECONDS):
            while True:
                message = json.loads(await self.socket.recv())
                self.frames.append(message)
                if message[0] in tags and where(message[1]):
                    return message[1]

    async def closing(self) -> tuple[int, str]:
        """Everything up to the close: its code and reason."""
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    self.frames.append(json.loads(await self.socket.recv()))
        except ConnectionClosed as closed:
            return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")

    async def error(self) -> dict[str, Any]:
        """The error that ends the connection."""
        body: dict[str, Any] = await self.hear("error")
        await self.closing()
        return body


def sync_url(
    port: int, client: str, group: str, *, version: int = 51, cookie: str = "", user: str | None = None, **more: str
) -> str:
    parameters = {"clientID": client, "clientGroupID": group, "baseCookie": cookie, "ts": "413.11", "lmid": "0"}
    parameters |= {"wsid": f"ws-{client}", "profileID": "p1"} | ({} if user is None else {"userID": user}) | more
    given = {name: value for name, value in parameters.items() if value != "-"}
    return f"ws://127.0.0.1:{port}/sync/v{version}/connect?{urlencode(given)}"


@asynccontextmanager
async def sync_client(
    url: str,
    *,
    init: Mapping[str, Any] | None = None,
    token: str | None = None,
    subprotocol: str | None = None,
    headers: Mapping[str, str] | None = None,
    compression: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[SyncClient]:
    """A connected client; `init` goes into the handshake. A `subprotocol` of "" offers none."""
    message = None if init is None else ["initConnection", dict(init)]
    offered = encode_subprotocol(message, token) if subprotocol is None else subprotocol
    socket = await connect(
        url,
        subprotocols=[offered] if offered else None,  # type: ignore[list-item]
        additional_headers=dict(headers or {}),
        compression=compression,
        ssl=tls,
        max_size=None,
        open_timeout=SECONDS,
    )
    try:
        yield SyncClient(socket)
    finally:
        # Python 3.11 raises this for a connection that the other side has cut while frames were waiting.
        with suppress(AttributeError):
            await socket.close()
