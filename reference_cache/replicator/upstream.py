"""The WebSocket connection to the change source: messages as bytes, in batches; all failures as `UpstreamError`.

aiohttp's compiled reader parses the frames. A task moves available messages into a batch, so `receive` returns all
that have arrived, and the caller knows that no more are waiting: the moment to make them durable. The batch is
bounded; while it is full the socket is not read, so a slow replica slows the source down.
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
"""The task stops reading when the batch is larger than this."""

if TYPE_CHECKING:
    Socket: TypeAlias = aiohttp.ClientWebSocketResponse[Literal[False]]
    """A socket that returns text messages as bytes."""


class UpstreamError(Exception):
    """The source cannot be reached, refused, or closed the connection. Its text has no URL, which may hold secrets."""

    code = "upstream"


class Upstream:
    """One open connection. Invariant: `_batch` has the messages that arrived and were not received, in order."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        # `pump` appends, `receive` takes all.
        self._batch: list[bytes] = []
        # Size of `_batch`.
        self._bytes = 0
        # Why the connection ended; set once by `pump`.
        self._end: UpstreamError | None = None
        # Set by `pump` when there is a message or the end.
        self._came = asyncio.Event()
        # Set by `receive` when it has taken the batch.
        self._taken = asyncio.Event()

    async def receive(self) -> list[bytes]:
        """Wait for messages and return all that have arrived; raises `UpstreamError` after the last one."""
        while not self._batch:
            if self._end is not None:
                raise self._end
            self._came.clear()
            await self._came.wait()
        batch, self._batch, self._bytes = self._batch, [], 0
        self._taken.set()
        return batch

    async def send(self, data: bytes) -> None:
        """Raises `UpstreamError`."""
        try:
            await self._socket.send_str(data.decode())
        except (aiohttp.ClientError, ConnectionError) as error:
            raise UpstreamError(f"the connection failed: {error}") from None

    async def pump(self) -> None:
        """Move messages into the batch until the connection ends."""
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
    """Open a connection; raises `UpstreamError`."""
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
