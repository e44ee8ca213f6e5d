"""Receives what a consumer sends: acknowledgements, in the form of either dialect.

Acknowledgements are cumulative and may repeat, so only the watermark counts, and one that is not higher is ignored. Any
other message ends this connection with a close code and a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from protocol.codec import MAX_UPSTREAM_BYTES
from protocol.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a connection ends: close code and reason; code None if the peer has already closed it."""

    code: int | None
    reason: str
    kind: str  # stable word for metrics


PEER_LEFT = Ending(None, "the consumer closed the connection", "peer-left")


async def receive(connection: ServerConnection, take: Callable[[str], None]) -> Ending:
    """Receive until the connection ends; `take` gets every text message and raises `ProtocolError` for a non-ack."""
    try:
        while True:
            message = await connection.recv()
            if isinstance(message, bytes):
                return Ending(CloseCode.UNSUPPORTED_DATA, "binary messages are not part of the protocol", "binary")
            try:
                take(message)
            except ProtocolError as error:
                return Ending(CloseCode.PROTOCOL_ERROR, str(error), "malformed")
    except ConnectionClosed:
        return _closed(connection)


def _closed(connection: ServerConnection) -> Ending:
    sent = connection.protocol.close_sent
    if sent is not None and sent.code == CloseCode.MESSAGE_TOO_BIG:
        # The library has already closed the connection; the reason is for log and metrics.
        return Ending(None, f"a message of more than {MAX_UPSTREAM_BYTES} bytes", "oversized")
    return PEER_LEFT
