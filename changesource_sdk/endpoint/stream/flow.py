"""Writes whole frames to one consumer with back-pressure, and checks that it is alive.

The log and the spool hold encoded frames, so sending is `transport.write` of a chunk; `websockets` does the handshake,
control frames and closing. Every chunk ends at a frame boundary, so a pong may be written between two chunks. `write`
returns when the transport's buffer is below its limit: a slow consumer delays only its own subscription and costs one
buffer.

Liveness: every byte received from the peer, and every byte it takes, is a sign of life. A peer without one for
`dead_after` seconds, although it was pinged, is dropped without a closing handshake, which it would not read either.
"""

from __future__ import annotations

import asyncio
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosedError
from websockets.protocol import State

from changesource_sdk.endpoint.access.gate import StreamAdmission
from protocol.framing import unframe

#: How many bytes may be buffered for a peer, in addition to the kernel's buffers.
WRITE_LIMIT = 256 * 1024
#: After a chunk of this size the event loop runs other tasks.
YIELD_BYTES = 64 * 1024


class PeerConnection(ServerConnection):
    """A server connection with its admission and the time of the last received byte."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Set by the server when the request is admitted.
        self.admission: StreamAdmission | None = None
        # When a byte was last received, on the loop's clock.
        self.last_heard = self.loop.time()

    def data_received(self, data: bytes) -> None:
        self.last_heard = self.loop.time()
        super().data_received(data)


class Flow:
    """The sending side of one connection. Invariant: at most `WRITE_LIMIT` plus one chunk is buffered."""

    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection
        # Bytes that `write` has passed to the transport since the connection opened.
        self._written = 0
        # How many of them the kernel had taken at the last `silent_for`, ...
        self._taken = 0
        # ... and when that number last grew, on the loop's clock.
        self._last_taken = connection.loop.time()

    async def write(self, chunk: bytes) -> None:
        """Send frames and wait for room. Raises `ConnectionClosed` once the connection is no longer open."""
        connection = self._connection
        if connection.state is not State.OPEN:
            raise ConnectionClosedError(None, None)
        if connection.protocol.extensions:
            for payload in unframe(chunk):
                await connection.send(payload, text=True)
        else:
            connection.transport.write(chunk)
            self._written += len(chunk)
            if connection.paused:
                await connection.drain()
            elif len(chunk) >= YIELD_BYTES:
                # Nothing above suspends for a fast peer, which would keep the loop from other tasks.
                await asyncio.sleep(0)

    def silent_for(self) -> float:
        """Seconds since the peer last sent or took a byte."""
        now = self._connection.loop.time()
        taken = self._written - self._connection.transport.get_write_buffer_size()
        if taken > self._taken:
            self._taken, self._last_taken = taken, now
        return now - max(self._last_taken, self._connection.last_heard)

    async def keep_alive(self, ping_interval: float, dead_after: float) -> None:
        """Ping at an interval; aborts the connection and returns once the peer is dead."""
        while self.silent_for() < dead_after:
            self._ping()
            await asyncio.sleep(min(ping_interval, dead_after / 4))
        self._connection.transport.abort()

    def _ping(self) -> None:
        # Not `connection.ping()`: that waits for room, and a peer that does not read would never be found dead.
        if self._connection.state is State.OPEN:
            self._connection.protocol.send_ping(b"")
            self._connection.send_data()


async def close(connection: PeerConnection, code: int, reason: str, within: float = 5.0) -> None:
    """Close with a handshake; abort the connection if the peer does not answer within that many seconds."""
    try:
        async with asyncio.timeout(within):
            await connection.close(code, _fitting(reason))
    except TimeoutError:
        connection.transport.abort()


def _fitting(reason: str) -> str:
    """The reason, cut to what a close frame can carry."""
    return reason.encode()[:120].decode(errors="ignore")
