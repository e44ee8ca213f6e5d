"""Wake-ups: bytes on a socket of this process that say that the log may have something new.

They carry no data and may be lost, so readers also poll every `SAFETY_POLL_S`: a lost wake-up costs latency, never a
transaction. A backend decides how the bytes get to the socket.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

SAFETY_POLL_S = 1.0
"""Readers poll this often, in seconds, even if no wake-up comes."""


class WakeupListener:
    """The receiving end: `listening` is readable when the log may have moved. `on_close` stops what feeds it."""

    def __init__(self, listening: socket.socket, on_close: Callable[[], None]) -> None:
        self._socket = listening
        self._socket.setblocking(False)
        self._on_close = on_close

    def fileno(self) -> int:
        """What to wait on; it stays the same until `close`."""
        return self._socket.fileno()

    def drain(self) -> None:
        """Forget all wake-ups so far; call it before reading the log."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(64)

    def wait(self, timeout: float = SAFETY_POLL_S) -> bool:
        """Block until woken or the timeout (seconds) is over; whether a wake-up came."""
        woken = bool(select.select([self._socket], [], [], timeout)[0])
        self.drain()
        return woken

    def close(self) -> None:
        """Stop listening."""
        self._on_close()
        self._socket.close()
