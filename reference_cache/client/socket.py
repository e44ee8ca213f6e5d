"""One connection to a cache, from its handshake to its end: frames in, frames out, and signs of life.

Contract: `run` connects, hands every message to the session, and returns when the connection is over, or raises what
ended it. What the session sends before the connection stands, or after its end, is not sent: it asks again on the next.
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

from protocol import values
from protocol.sync.downstream import Connected, Downstream, Pong, decode
from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.handshake import MAX_VERSION, encode_subprotocol
from reference_cache.client.errors import ClientError

OPEN_SECONDS = 10.0
QUIET_SECONDS = 5.0
"""After so long without a frame a ping is sent, and after as long again the connection counts as lost."""

HEADER_LIMIT = 8192
"""An encoded first message longer than this follows the handshake instead of travelling in it."""

TOO_BIG = 1009
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True, slots=True)
class Opening:
    """What a connection begins with: the query's parameters, the first message, and the token."""

    parameters: dict[str, str]
    init: dict[str, Any]
    token: str | None


class Session(Protocol):
    """Who talks on the connection."""

    def opening(self) -> Opening:
        """What to begin with; asked once per connection."""
        ...

    def opened(self, outbox: Outbox) -> None:
        """The connection stands; whatever is open goes into the outbox."""
        ...

    def take(self, message: Downstream) -> None:
        """A message came; what it raises ends the connection."""
        ...

    def check_patience(self) -> None:
        """Asked after every message and every silence; raises `Lost` if another connection is wanted."""
        ...

    def closed(self) -> None:
        """The connection that was opened is over."""
        ...


class Outbox:
    """Messages on their way out, in order."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()

    def put(self, tag: str, body: object) -> None:
        """Send a message as soon as the socket takes it."""
        self._frames.put_nowait(values.dumps([tag, body]))

    async def drain_into(self, socket: ClientConnection) -> None:
        """Send for as long as the connection lasts."""
        while True:
            await socket.send(await self._frames.get(), text=True)


class Lost(Exception):
    """The connection could not be made, or broke; connecting again may help."""


def sync_address(url: str) -> str:
    """The address to connect to on the cache at a URL; raises `ClientError`."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        fix = "give http://host:port, or the https, ws or wss of it"
        raise ClientError("bad-url", "this is no address of a cache", url, fix)
    path = f"{parts.path.rstrip('/')}/sync/v{MAX_VERSION}/connect"
    return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path, "", ""))


async def run(address: str, session: Session) -> None:
    """One connection, start to end; raises `Lost`, or what the session raised."""
    opening = session.opening()
    ws_id = secrets.token_hex(9)
    parameters = {**opening.parameters, "wsid": ws_id, "ts": f"{time.monotonic() * 1000:.3f}"}
    letter = encode_subprotocol(["initConnection", opening.init], opening.token)
    travels_along = len(letter) <= HEADER_LIMIT
    if not travels_along:
        letter = encode_subprotocol(None, opening.token)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            socket = await connect(
                f"{address}?{urlencode(parameters)}",
                subprotocols=[letter],  # type: ignore[list-item]
                compression=None,
                max_size=None,
                ping_interval=None,
                open_timeout=None,
                proxy=None,
            )
    except (OSError, TimeoutError, WebSocketException) as error:
        raise Lost(str(error) or "connecting took too long") from None
    async with socket:
        await _greeted(socket, session)
        outbox = Outbox()
        if not travels_along:
            init = {key: value for key, value in opening.init.items() if key != "activeClients"}
            outbox.put("initConnection", init)
        await _talk(socket, session, outbox)


async def _greeted(socket: ClientConnection, session: Session) -> None:
    """The first message is `connected`, unless the cache refuses."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            message = decode(await socket.recv())
    except TimeoutError:
        raise Lost("the cache did not answer the handshake") from None
    except ConnectionClosed as closed:
        raise _end(closed) from None
    if not isinstance(message, Connected):
        session.take(message)
        raise Lost(f"the cache began with {message.tag or 'something else'}")


async def _talk(socket: ClientConnection, session: Session, outbox: Outbox) -> None:
    session.opened(outbox)
    writer = asyncio.create_task(outbox.drain_into(socket))
    try:
        await _read(socket, session, outbox)
    except ConnectionClosed as closed:
        raise _end(closed) from None
    finally:
        session.closed()
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


async def _read(socket: ClientConnection, session: Session, outbox: Outbox) -> None:
    pinged = False
    while True:
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                text = await socket.recv()
        except TimeoutError:
            if pinged:
                raise Lost("the cache did not answer a ping") from None
            pinged = True
            outbox.put("ping", {})
        else:
            message = decode(text)
            if isinstance(message, Pong):
                pinged = False
            session.take(message)
        session.check_patience()


def _end(closed: ConnectionClosed) -> Exception:
    if closed.rcvd is not None and closed.rcvd.code == TOO_BIG:
        return SyncError(ErrorKind.INVALID_MESSAGE, "a message was larger than the cache takes")
    if closed.rcvd is not None and closed.rcvd.code == 1002:
        return SyncError(ErrorKind.INVALID_CONNECTION_REQUEST, closed.rcvd.reason)
    return Lost(f"the connection was closed: {closed}")
