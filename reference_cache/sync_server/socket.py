"""A WebSocket of the sync server: counts received bytes, reports room to send, and closes without waiting.

The close frame is written immediately; a client that does not answer it is aborted after `CLOSE_SECONDS`.
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
from reference_cache.sync_server.accept import Connections

TRANSPORT_BYTES = 64 * 1024
"""How many bytes the transport may buffer before it is paused; it copies what it buffers."""

READ_BYTES = 32 * 1024
"""How many bytes are read from one socket at a time."""

CLOSE_SECONDS = 5.0
REASON_BYTES = 120
"""Longest reason in a close frame, which holds 125 bytes with its code."""


class SyncSocket(ServerConnection):
    """A server connection. All ways of closing it return immediately and may be called more than once."""

    def __init__(self, *args: Any, budget: ByteBudget, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The parsed handshake; set by the server, dropped by `forget_request`.
        self.connect_request: ConnectRequest | None = None
        # Why the handshake cannot be served; set by the server instead of `connect_request`.
        self.refused: str | None = None
        # Called when the transport accepts data again; set by `Outbox`.
        self.on_room: Callable[[], None] | None = None
        # None once received bytes are not counted any more.
        self._budget: ByteBudget | None = budget
        self._connections = connections
        # The remote IP address, as `connections` counts it; set by `connection_made`.
        self._address = ""
        # Whether received bytes are discarded unread: over budget, and waiting for the client's close.
        self._is_discarding = False
        # Bytes of complete frames that are not received as messages yet.
        self._framed = 0
        # What is counted in the budget: `_framed`, and the available part of the next frame.
        self._counted = 0

    def forget_request(self) -> None:
        """Free the memory of the handshake: the init message is in its subprotocol and in its headers."""
        self.connect_request = None
        self.protocol.subprotocol = None
        for each in (self.request, self.response):
            if each is not None:
                each.headers.clear()  # the library keeps the objects themselves

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # asyncio reads 256 KB at a time: many thousand small frames
            transport.max_size = READ_BYTES
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._connections.enter(self._address):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._is_discarding:
            super().data_received(data)
            self._count()

    def process_event(self, event: Any) -> None:
        if isinstance(event, Frame) and event.opcode in DATA_OPCODES:
            self._framed += len(event.data)
        super().process_event(event)

    def message_received(self, size: int) -> None:
        """Stop counting a message of `size` bytes: its receiver counts it from now on."""
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
            self.send_error_and_close(error)
            # Free the memory now, not when the client has answered the close.
            self._is_discarding = True
            self.protocol.reader.buffer.clear()
        else:
            self._counted = counted

    def stop_counting(self) -> None:
        """Release the counted bytes and count no more: what still arrives is not kept."""
        if self._budget is not None:
            self._budget.resize(self._counted, 0)
            self._counted, self._budget = 0, None

    def send_error_and_close(self, error: SyncError, code: int | None = None) -> None:
        """Send the error and close."""
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
        """Abort the connection, if it has not ended."""
        if not self.connection_lost_waiter.done():
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_room is not None:
            self.on_room()
