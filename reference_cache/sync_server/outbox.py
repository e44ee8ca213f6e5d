"""The sending side of one socket: never blocks, bounded, and cheap for frames that go to many clients.

Frames are passed to the transport while it accepts them, a piece at a time. The rest is queued by reference, so a frame
for five hundred slow clients is in memory once. A client that takes nothing while frames are queued, or that stays far
behind, is dropped: it reconnects with its cookie and gets the difference. Both rules allow some time, because the first
poke of a large query puts every client far behind for a moment. What is queued for all clients together is bounded by
`Backlog`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from websockets.protocol import State

from protocol.framing import frame
from reference_cache.sync_server.socket import TRANSPORT_BYTES, SyncSocket
from reference_cache.view_syncer.api import Outgoing

STUCK_SECONDS = 10.0
"""A client that has taken nothing for this long while frames are queued is dropped."""

BEHIND_SECONDS = 30.0
"""A client that has been over the limit for this long is dropped."""

NEVER_MORE = 8
"""A client this many times over the limit is dropped immediately."""

RESTING_SECONDS = 1.0
"""When the backlog is over its limit, clients that have taken nothing for this long are dropped. Clients that read are
dropped only when it is over twice its limit."""


class Backlog:
    """What is queued for all clients of a server. Invariant: `bytes` is its size in memory, each frame once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # The outboxes with queued frames.
        self._outboxes: set[Outbox] = set()
        # `id` of a frame -> in how many outboxes it is queued.
        self._waiting: dict[int, int] = {}
        # Written by `enter` and `leave`.
        self.bytes = 0

    def enter(self, outbox: Outbox, wire: bytes) -> None:
        """Count a queued frame; if the limit is exceeded, drop the slowest clients."""
        self._outboxes.add(outbox)
        count = self._waiting.get(id(wire), 0)
        self._waiting[id(wire)] = count + 1
        if not count:
            self.bytes += len(wire)
            while self.is_full and (slowest := self._slowest()) is not None:
                slowest.give_up()

    @property
    def is_full(self) -> bool:
        return self.bytes > self._limit

    def leave(self, wire: bytes) -> None:
        """Stop counting a frame in one outbox."""
        count = self._waiting.pop(id(wire))
        if count > 1:
            self._waiting[id(wire)] = count - 1
        else:
            self.bytes -= len(wire)

    def empty(self, outbox: Outbox) -> None:
        """Note that an outbox has no queued frames."""
        self._outboxes.discard(outbox)

    def _slowest(self) -> Outbox | None:
        """The outbox with the most bytes among those that rest; among all, if the backlog is over twice its limit."""
        far_too_much = self.bytes > 2 * self._limit
        resting = [each for each in self._outboxes if far_too_much or each.rests_for() > RESTING_SECONDS]
        return max(resting, key=lambda each: each.waiting_bytes, default=None)


class Outbox:
    """The queued frames of one client. Invariant: frames are sent whole and in order."""

    def __init__(self, socket: SyncSocket, limit: int, backlog: Backlog, on_given_up: Callable[[], None]) -> None:
        self._socket = socket
        self._limit = limit
        self._backlog = backlog
        self._on_given_up = on_given_up
        # None while empty: there are many idle clients, and even an empty deque is large.
        self._waiting: deque[bytes] | None = None
        # How many bytes of the first queued frame the transport has.
        self._sent = 0
        self._loop = asyncio.get_running_loop()
        # Queued bytes that the transport does not have.
        self.waiting_bytes = 0
        # When `send` was last called, on the loop's clock.
        self.last_sent = self._loop.time()
        # When the transport last accepted data.
        self._last_room = self.last_sent
        # Since when `waiting_bytes` is over the limit; None if it is not.
        self._behind_since: float | None = None
        socket.on_room = self._flush

    def send(self, outgoing: Outgoing) -> None:
        """Send frames, or queue them; does nothing once the socket is closing."""
        if self._socket.state is not State.OPEN:
            return
        wire = self._wire(outgoing)
        self.last_sent = self._loop.time()
        if self._waiting is None and not self._socket.paused and len(wire) <= TRANSPORT_BYTES:
            self._last_room = self.last_sent
            self._socket.transport.write(wire)
            return
        self._wait(wire)
        if not self._socket.paused:
            self._flush()

    def is_too_slow(self) -> bool:
        """Whether the client must be dropped now."""
        now = self._loop.time()
        stuck = self._waiting is not None and now - self._last_room > STUCK_SECONDS
        behind = self._behind_since is not None and now - self._behind_since > BEHIND_SECONDS
        in_the_way = self._waiting is not None and self._backlog.is_full and self.rests_for() > RESTING_SECONDS
        return stuck or behind or in_the_way or self.waiting_bytes > NEVER_MORE * self._limit

    def rests_for(self) -> float:
        """How many seconds the client has taken nothing."""
        return self._loop.time() - self._last_room

    def give_up(self) -> None:
        """Drop the client and its queued frames, because the backlog is full."""
        self._on_given_up()
        self.discard()

    def discard(self) -> None:
        """Drop the queued frames."""
        for wire in self._waiting or ():
            self._backlog.leave(wire)
        self._waiting = None
        self.waiting_bytes = self._sent = 0
        self._backlog.empty(self)

    def _wait(self, wire: bytes) -> None:
        if self._waiting is None:
            self._waiting = deque()
            self._last_room = self.last_sent
        self._waiting.append(wire)
        self.waiting_bytes += len(wire)
        if self.waiting_bytes > self._limit:
            self._behind_since = self._behind_since or self.last_sent
        self._backlog.enter(self, wire)
        if self.waiting_bytes > NEVER_MORE * self._limit:
            self._socket.cut()

    def _flush(self) -> None:
        self._last_room = self._loop.time()
        waiting = self._waiting
        while waiting and not self._socket.paused and self._socket.state is State.OPEN:
            # A piece at a time, because the transport copies what it cannot send immediately.
            piece = memoryview(waiting[0])[self._sent : self._sent + TRANSPORT_BYTES]
            self._sent += len(piece)
            self.waiting_bytes -= len(piece)
            if self._sent == len(waiting[0]):
                self._backlog.leave(waiting.popleft())
                self._sent = 0
            self._socket.transport.write(piece)
        if not waiting:
            self._waiting = None
            self._backlog.empty(self)
        if self.waiting_bytes <= self._limit:
            self._behind_since = None

    def _wire(self, outgoing: Outgoing) -> bytes:
        protocol = self._socket.protocol
        if protocol.extensions:
            # The compressor has state per connection, so frames cannot be shared and must pass it in order.
            for each in outgoing.frames:
                protocol.send_text(each)
            return b"".join(protocol.data_to_send())
        if outgoing.wire is None:
            outgoing.wire = b"".join(map(frame, outgoing.frames))
        return outgoing.wire
