"""One WebSocket connection to a cache: handshake, messages in both directions, pings.

Contract: `run` connects, passes every message to its handler, and returns when the connection has ended, or raises
what ended it. Messages that are queued before the connection is open or after its end are not sent; the handler sends
what is still needed when the next connection opens.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.frames import CloseCode

from protocol import values
from protocol.sync.downstream import Connected, Downstream, Pong, decode
from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.handshake import MAX_VERSION, encode_subprotocol
from reference_cache.client.errors import ClientError

OPEN_SECONDS = 10.0
QUIET_SECONDS = 5.0
"""After this long without a message a ping is sent; after as long again without one the connection counts as lost."""

HEADER_LIMIT = 8192
"""An encoded init message longer than this many bytes is sent after the handshake instead of in its subprotocol header.

The official client's `maxHeaderLength` has the same value.
"""

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True, slots=True)
class Opening:
    """The handshake of one connection: URL parameters, `initConnection` body, and token."""

    parameters: dict[str, str]
    init: dict[str, Any]
    token: str | None


class MessageHandler(Protocol):
    """What `run` calls, on its own task. An exception from `take` or `check_confirmations` ends the connection."""

    def opening(self) -> Opening:
        """The handshake; called once per connection, before it is made."""
        ...

    def opened(self, send_queue: SendQueue) -> None:
        """The cache has sent `connected`; messages can be queued from now on."""
        ...

    def take(self, message: Downstream) -> None:
        """Handle one message, also an error before `opened`."""
        ...

    def check_confirmations(self) -> None:
        """Called after every message and every silent interval; raises `Lost` to get another connection."""
        ...

    def closed(self) -> None:
        """The connection has ended; called once for each `opened`."""
        ...


class SendQueue:
    """Messages to send, in order. Unbounded: a client pushes at the speed of one user."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()

    def put(self, tag: str, body: object) -> None:
        """Queue a message without waiting."""
        self._frames.put_nowait(values.dumps([tag, body]))

    async def drain_into(self, socket: ClientConnection) -> None:
        """Send queued messages until cancelled."""
        while True:
            await socket.send(await self._frames.get(), text=True)


class Lost(Exception):
    """The connection could not be made, or broke; connecting again may work."""


def sync_address(url: str) -> str:
    """The WebSocket URL of `/sync/v…/connect` for a cache's base URL; raises `ClientError` with code `bad-url`."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        fix = "use http://host:port, or the same with https, ws or wss"
        raise ClientError("bad-url", "the URL is not the address of a cache", url, fix)
    path = f"{parts.path.rstrip('/')}/sync/v{MAX_VERSION}/connect"
    return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path, "", ""))


async def run(address: str, handler: MessageHandler) -> None:
    """Make one connection and serve it to its end; raises `Lost`, or what the handler raised."""
    opening = handler.opening()
    ws_id = secrets.token_hex(9)
    parameters = {**opening.parameters, "wsid": ws_id, "ts": f"{time.monotonic() * 1000:.3f}"}
    subprotocol = encode_subprotocol(["initConnection", opening.init], opening.token)
    init_in_header = len(subprotocol) <= HEADER_LIMIT
    if not init_in_header:
        subprotocol = encode_subprotocol(None, opening.token)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            socket = await connect(
                f"{address}?{urlencode(parameters)}",
                subprotocols=[subprotocol],  # type: ignore[list-item]
                compression=None,
                max_size=None,
                ping_interval=None,
                open_timeout=None,
                proxy=None,
            )
    except (OSError, TimeoutError, WebSocketException) as error:
        raise Lost(str(error) or "connecting took too long") from None
    async with socket:
        await _await_connected(socket, handler)
        send_queue = SendQueue()
        if not init_in_header:
            # As the official client does: `activeClients` travels in the header only.
            init = {key: value for key, value in opening.init.items() if key != "activeClients"}
            send_queue.put("initConnection", init)
        await _serve(socket, handler, send_queue)


async def _await_connected(socket: ClientConnection, handler: MessageHandler) -> None:
    """Wait for `connected`. Any other first message is a refusal: the handler raises its error."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            message = decode(await socket.recv())
    except TimeoutError:
        raise Lost("the cache did not answer the handshake") from None
    except ConnectionClosed as closed:
        raise _end(closed) from None
    if not isinstance(message, Connected):
        handler.take(message)
        raise Lost(f"the cache began with {message.tag or 'something else'}")


async def _serve(socket: ClientConnection, handler: MessageHandler, send_queue: SendQueue) -> None:
    handler.opened(send_queue)
    writer = asyncio.create_task(send_queue.drain_into(socket))
    try:
        await _read(socket, handler, send_queue)
    except ConnectionClosed as closed:
        raise _end(closed) from None
    finally:
        handler.closed()
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


async def _read(socket: ClientConnection, handler: MessageHandler, send_queue: SendQueue) -> None:
    pinged = False
    while True:
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                text = await socket.recv()
        except TimeoutError:
            if pinged:
                raise Lost("the cache did not answer a ping") from None
            pinged = True
            send_queue.put("ping", {})
        else:
            message = decode(text)
            if isinstance(message, Pong):
                pinged = False
            handler.take(message)
        handler.check_confirmations()


def _end(closed: ConnectionClosed) -> Exception:
    if closed.rcvd is not None and closed.rcvd.code == CloseCode.MESSAGE_TOO_BIG:
        return SyncError(ErrorKind.INVALID_MESSAGE, "a message was larger than the cache takes")
    if closed.rcvd is not None and closed.rcvd.code == CloseCode.PROTOCOL_ERROR:
        return SyncError(ErrorKind.INVALID_CONNECTION_REQUEST, closed.rcvd.reason)
    return Lost(f"the connection was closed: {closed}")
