"""One client's WebSocket: what it asked for, when it takes more, and the ways it ends.

Closing never waits: the close frame is written at once, and a client that takes no part in closing is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import DATA_OPCODES, Frame
from websockets.protocol import State

from protocol.sync.errors import SyncError
from protocol.sync.handshake import ConnectRequest
from reference_cache.byte_budget import ByteBudget
from reference_cache.sync_server.accepting import Connections

TRANSPORT_BYTES = 64 * 1024
"""What may wait in the transport itself, where bytes are copied."""

READ_BYTES = 32 * 1024
"""What is read from one socket before others have their turn."""

CLOSE_SECONDS = 5.0
REASON_BYTES = 120
"""What a close frame has room for."""


class SyncSocket(ServerConnection):
    """A server connection that can be ended from anywhere, without waiting and more than once."""

    def __init__(self, *args: Any, budget: ByteBudget, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: ConnectRequest | None = None
        self.refused: str | None = None  # why the handshake cannot be served
        self.on_room: Callable[[], None] | None = None
        self._budget: ByteBudget | None = budget  # None once nothing is counted any more
        self._connections = connections
        self._address = ""  # the peer's, as `connections` counts it
        self._is_deaf = False  # what still arrives is thrown away unread
        self._framed = 0  # bytes of whole frames that were not taken off yet
        self._counted = 0  # what is counted in the budget: those, and what is there of the next frame

    def forget_request(self) -> None:
        """Let go of what the client came with: the first message is in it, in the subprotocol and in the headers."""
        self.asked = None
        self.protocol.subprotocol = None
        for each in (self.request, self.response):
            if each is not None:
                each.headers.clear()  # the library keeps the messages themselves

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # what asyncio reads at once, 256 KB: many thousand small frames
            transport.max_size = READ_BYTES
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._connections.enter(self._address):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._is_deaf:
            super().data_received(data)
            self._count()

    def process_event(self, event: Any) -> None:
        if isinstance(event, Frame) and event.opcode in DATA_OPCODES:
            self._framed += len(event.data)
        super().process_event(event)

    def take_off(self, size: int) -> None:
        """A message of that many bytes was received and is counted elsewhere from now on."""
        self._framed -= size
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.leave(self._address)
        self.stop_counting()

    def _count(self) -> None:
        if self._budget is None:
            return
        counted = self._framed + len(self.protocol.reader.buffer)
        try:
            self._budget.resize(self._counted, counted)
        except SyncError as error:
            self.stop_counting()
            self.tell_and_close(error)
            # The memory is needed now, not when the client has closed.
            self._is_deaf = True
            self.protocol.reader.buffer.clear()
        else:
            self._counted = counted

    def stop_counting(self) -> None:
        """Count nothing of what comes from now on: it is not kept."""
        if self._budget is not None:
            self._budget.resize(self._counted, 0)
            self._counted, self._budget = 0, None

    def tell_and_close(self, error: SyncError, code: int | None = None) -> None:
        """Tell the client what is wrong and close."""
        if self.state is State.OPEN:
            self.protocol.send_text(error.frame)
            self.begin_close(code, error.message if code is not None else "")

    def begin_close(self, code: int | None = None, reason: str = "") -> None:
        """Close; without a code the client sees 1005, as from the official server."""
        if self.state is State.OPEN:
            self.protocol.send_close(code, reason.encode()[:REASON_BYTES].decode(errors="ignore"))
            self.send_data()
            self.loop.call_later(CLOSE_SECONDS, self.cut)

    def cut(self) -> None:
        """End the connection at once, if it has not ended."""
        if not self.connection_lost_waiter.done():
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_room is not None:
            self.on_room()
