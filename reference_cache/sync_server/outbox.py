"""The sending side of one socket: never blocks, bounded, and cheap for frames that go to many.

Frames are handed to the transport while it takes them; the rest waits here by reference, so that a frame on its way to
five hundred slow clients is in memory once. A client that takes nothing while frames wait, or that stays far behind, is
dropped without ceremony: it comes back with its cookie and gets the difference. Being far behind for a moment is
nobody's fault, since the first poke of a large query comes all at once; hence the time both rules allow.
"""

from __future__ import annotations

import asyncio
from collections import deque

from websockets.protocol import State

from protocol.framing import frame
from reference_cache.sync_server.socket import SyncSocket
from reference_cache.view_syncer.api import Outgoing

STUCK_SECONDS = 10.0
BEHIND_SECONDS = 30.0
NEVER_MORE = 8
"""A client this many times over the limit is dropped at once."""


class Outbox:
    """What one client is still to get. Invariant: frames go out whole and in order; `waiting_bytes` is their sum."""

    def __init__(self, socket: SyncSocket, limit: int) -> None:
        self._socket = socket
        self._limit = limit
        self._waiting: deque[bytes] | None = None  # there is one while something waits: even an empty one is large
        self._loop = asyncio.get_running_loop()
        self.waiting_bytes = 0
        self.last_sent = self._loop.time()
        self._last_room = self.last_sent  # when the socket last took something
        self._behind_since: float | None = None
        socket.on_room = self._flush

    def send(self, outgoing: Outgoing) -> None:
        """Send frames after everything before them."""
        if self._socket.state is not State.OPEN:
            return
        wire = self._wire(outgoing)
        self.last_sent = self._loop.time()
        if self._waiting is not None or self._socket.paused:
            self._wait(wire)
        else:
            self._last_room = self.last_sent
            self._socket.transport.write(wire)

    def is_too_slow(self) -> bool:
        """Whether the client is to be dropped, if looked at now."""
        now = self._loop.time()
        stuck = self._waiting is not None and now - self._last_room > STUCK_SECONDS
        behind = self._behind_since is not None and now - self._behind_since > BEHIND_SECONDS
        return stuck or behind or self.waiting_bytes > NEVER_MORE * self._limit

    def discard(self) -> None:
        """Forget what waits."""
        self._waiting = None
        self.waiting_bytes = 0

    def _wait(self, wire: bytes) -> None:
        if self._waiting is None:
            self._waiting = deque()
            self._last_room = self.last_sent
        self._waiting.append(wire)
        self.waiting_bytes += len(wire)
        if self.waiting_bytes > self._limit:
            self._behind_since = self._behind_since or self.last_sent
        if self.waiting_bytes > NEVER_MORE * self._limit:
            self._socket.cut()

    def _flush(self) -> None:
        self._last_room = self._loop.time()
        waiting = self._waiting
        while waiting and not self._socket.paused and self._socket.state is State.OPEN:
            wire = waiting.popleft()
            self.waiting_bytes -= len(wire)
            self._socket.transport.write(wire)
        if not waiting:
            self._waiting = None
        if self.waiting_bytes <= self._limit:
            self._behind_since = None

    def _wire(self, outgoing: Outgoing) -> bytes:
        protocol = self._socket.protocol
        if protocol.extensions:
            # The compressor has a memory per connection, so frames pass it in the order they are given.
            for each in outgoing.frames:
                protocol.send_text(each)
            return b"".join(protocol.data_to_send())
        if outgoing.wire is None:
            outgoing.wire = b"".join(map(frame, outgoing.frames))
        return outgoing.wire
