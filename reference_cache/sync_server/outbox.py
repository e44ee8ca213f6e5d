"""The sending side of one socket: never blocks, bounded, and cheap for frames that go to many.

Frames are handed to the transport while it takes them, a piece at a time; the rest waits here by reference, so that a
frame on its way to five hundred slow clients is in memory once. A client that takes nothing while frames wait, or that
stays far behind, is dropped without ceremony: it comes back with its cookie and gets the difference. Being far behind
for a moment is nobody's fault, since the first poke of a large query comes all at once; hence the time both rules
allow. What waits for all clients together is bounded too (`Backlog`).
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
BEHIND_SECONDS = 30.0
NEVER_MORE = 8
"""A client this many times over the limit is dropped at once."""

RESTING_SECONDS = 1.0
"""A client that has taken nothing for so long is dropped when there is no room for all. One that reads is dropped only
when there is twice as much as there is room for."""


class Backlog:
    """What waits for all clients of a server. Invariant: `bytes` is what it takes in memory, each frame once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._outboxes: set[Outbox] = set()  # those in which something waits
        self._waiting: dict[int, int] = {}  # id of a frame -> in how many outboxes it waits
        self.bytes = 0

    def enter(self, outbox: Outbox, wire: bytes) -> None:
        """A frame begins to wait; makes room if there is none, by dropping those who read least."""
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
        """A frame waits in one outbox less."""
        count = self._waiting.pop(id(wire))
        if count > 1:
            self._waiting[id(wire)] = count - 1
        else:
            self.bytes -= len(wire)

    def empty(self, outbox: Outbox) -> None:
        """Nothing waits in an outbox any more."""
        self._outboxes.discard(outbox)

    def _slowest(self) -> Outbox | None:
        """Whom to drop: the one with most of those who have not read for a while; of all, if there is far too much."""
        far_too_much = self.bytes > 2 * self._limit
        resting = [each for each in self._outboxes if far_too_much or each.rests_for() > RESTING_SECONDS]
        return max(resting, key=lambda each: each.waiting_bytes, default=None)


class Outbox:
    """What one client is still to get. Invariant: frames go out whole and in order; `waiting_bytes` is their sum."""

    def __init__(self, socket: SyncSocket, limit: int, backlog: Backlog, on_given_up: Callable[[], None]) -> None:
        self._socket = socket
        self._limit = limit
        self._backlog = backlog
        self._on_given_up = on_given_up
        self._waiting: deque[bytes] | None = None  # there is one while something waits: even an empty one is large
        self._sent = 0  # bytes of the first that have been handed to the transport
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
        if self._waiting is None and not self._socket.paused and len(wire) <= TRANSPORT_BYTES:
            self._last_room = self.last_sent
            self._socket.transport.write(wire)
            return
        self._wait(wire)
        if not self._socket.paused:
            self._flush()

    def is_too_slow(self) -> bool:
        """Whether the client is to be dropped, if looked at now."""
        now = self._loop.time()
        stuck = self._waiting is not None and now - self._last_room > STUCK_SECONDS
        behind = self._behind_since is not None and now - self._behind_since > BEHIND_SECONDS
        in_the_way = self._waiting is not None and self._backlog.is_full and self.rests_for() > RESTING_SECONDS
        return stuck or behind or in_the_way or self.waiting_bytes > NEVER_MORE * self._limit

    def rests_for(self) -> float:
        """For how many seconds the client has taken nothing."""
        return self._loop.time() - self._last_room

    def give_up(self) -> None:
        """There is no room for what waits here: forget it and drop the client."""
        self._on_given_up()
        self.discard()

    def discard(self) -> None:
        """Forget what waits."""
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
            # A piece at a time, since what the transport does not send at once it copies.
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
            # The compressor has a memory per connection, so frames pass it in the order they are given.
            for each in outgoing.frames:
                protocol.send_text(each)
            return b"".join(protocol.data_to_send())
        if outgoing.wire is None:
            outgoing.wire = b"".join(map(frame, outgoing.frames))
        return outgoing.wire
