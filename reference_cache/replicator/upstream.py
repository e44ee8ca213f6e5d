"""The socket to the change source: messages as bytes, as many at a time as are there, errors as one kind.

aiohttp's compiled reader takes the frames apart. A small task moves messages from it into a batch while there are any,
so the caller gets all that is at hand and knows that nothing more is: the moment to make things durable. The batch is
bounded; when nobody takes it the socket is not read either, so a slow replica slows the source down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

import aiohttp

from protocol.codec import MAX_MESSAGE_BYTES

CONNECT_SECONDS = 30.0
HEARTBEAT_SECONDS = 30.0
BATCH_BYTES = 1 << 20

if TYPE_CHECKING:
    Socket: TypeAlias = aiohttp.ClientWebSocketResponse[Literal[False]]
    """A socket that gives texts as bytes."""


class UpstreamError(Exception):
    """The source cannot be reached, refuses, or is gone. Never shows the URL, which may hold secrets."""

    code = "upstream"


class Upstream:
    """One open connection. Invariant: `_batch` has what came and was not asked for, in order."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._batch: list[bytes] = []
        self._bytes = 0
        self._end: UpstreamError | None = None
        self._came = asyncio.Event()
        self._taken = asyncio.Event()

    async def receive(self) -> list[bytes]:
        """The messages at hand, at least one; `UpstreamError` once there will be none."""
        while not self._batch:
            if self._end is not None:
                raise self._end
            self._came.clear()
            await self._came.wait()
        batch, self._batch, self._bytes = self._batch, [], 0
        self._taken.set()
        return batch

    async def send(self, data: bytes) -> None:
        """Send a message."""
        try:
            await self._socket.send_str(data.decode())
        except (aiohttp.ClientError, ConnectionError) as error:
            raise UpstreamError(f"the connection failed: {error}") from None

    async def pump(self) -> None:
        """Move messages into the batch until there will be no more."""
        receive, text, binary = self._socket.receive, aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY
        while True:
            message = await receive()
            if message.type is not text and message.type is not binary:
                self._end = self._ended(message.type, message.data)
                self._came.set()
                return
            if not self._batch:
                self._came.set()
            self._batch.append(message.data)
            self._bytes += len(message.data)
            if self._bytes > BATCH_BYTES:
                self._taken.clear()
                await self._taken.wait()

    def _ended(self, kind: aiohttp.WSMsgType, data: object) -> UpstreamError:
        if kind is aiohttp.WSMsgType.ERROR:
            return UpstreamError(f"the connection failed: {data}")
        return UpstreamError(f"the source closed the connection (code {self._socket.close_code})")


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Upstream]:
    """Open a stream; it is closed with the context."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session, await _open(session, url) as socket:
        upstream = Upstream(socket)
        pump = asyncio.create_task(upstream.pump())
        try:
            yield upstream
        finally:
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump


async def _open(session: aiohttp.ClientSession, url: str) -> Socket:
    try:
        return await session.ws_connect(
            url, max_msg_size=MAX_MESSAGE_BYTES, compress=0, heartbeat=HEARTBEAT_SECONDS, decode_text=False
        )
    except aiohttp.WSServerHandshakeError as error:
        raise UpstreamError(f"the source refused the connection: HTTP {error.status}") from None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise UpstreamError(f"the source cannot be reached: {type(error).__name__}") from None
