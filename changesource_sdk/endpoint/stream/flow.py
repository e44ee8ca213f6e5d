"""Writing whole frames to one consumer as fast as it reads, and no faster.

The log and the spool hold frames ready for the wire, so sending is `transport.write` of a chunk; handshake, control
frames and closing stay with `websockets`. Every chunk ends at a frame boundary, so a pong written between two chunks
is in its place. `write` returns once the transport's buffer is below its limit: a slow consumer holds back its own
subscription and costs one buffer, nothing else.

Liveness: any byte heard from the peer, and any byte it took, is a sign of life. A peer that gives none for
`dead_after` seconds, though it was pinged, is dropped without a closing handshake (it would not read that either).
"""

from __future__ import annotations

import asyncio
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosedError
from websockets.protocol import State

from changesource_sdk.endpoint.access.gate import Admission
from protocol.framing import unframe

#: How far the sender may run ahead of the peer, besides the kernel's own buffers.
WRITE_LIMIT = 256 * 1024
YIELD_BYTES = 64 * 1024


class PeerConnection(ServerConnection):
    """A server connection that remembers what its peer asked for and when it was last heard."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.admission: Admission | None = None  # set when the request is admitted
        self.last_heard = self.loop.time()

    def data_received(self, data: bytes) -> None:
        self.last_heard = self.loop.time()
        super().data_received(data)


class Flow:
    """The sending side of one connection. Invariant: at most `WRITE_LIMIT` plus one chunk waits in memory."""

    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection
        self._written = 0  # bytes handed to the transport by `write`, ever
        self._taken = 0  # of those, how many the kernel had taken when last looked at
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
                # A peer that takes everything at once would else keep the loop from the others.
                await asyncio.sleep(0)

    def silent_for(self) -> float:
        """Seconds since the peer last sent or took a byte."""
        now = self._connection.loop.time()
        taken = self._written - self._connection.transport.get_write_buffer_size()
        if taken > self._taken:
            self._taken, self._last_taken = taken, now
        return now - max(self._last_taken, self._connection.last_heard)

    async def keep_alive(self, ping_interval: float, dead_after: float) -> None:
        """Ping at an interval; return, having dropped the connection, once the peer is dead."""
        while self.silent_for() < dead_after:
            self._ping()
            await asyncio.sleep(min(ping_interval, dead_after / 4))
        self._connection.transport.abort()

    def _ping(self) -> None:
        # Not `connection.ping()`: that waits for room, and a peer that does not read would then never be judged.
        if self._connection.state is State.OPEN:
            self._connection.protocol.send_ping(b"")
            self._connection.send_data()


async def close(connection: PeerConnection, code: int, reason: str, within: float = 5.0) -> None:
    """Close with a handshake if the peer takes part in it in that many seconds, else drop the connection."""
    try:
        async with asyncio.timeout(within):
            await connection.close(code, _fitting(reason))
    except TimeoutError:
        connection.transport.abort()


def _fitting(reason: str) -> str:
    """A reason as long as a close frame can carry."""
    return reason.encode()[:120].decode(errors="ignore")
