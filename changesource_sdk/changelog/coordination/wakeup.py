"""Wake-ups: bytes on a socket of this process, which mean that the log may have something new to read.

They have no content and may be lost, so readers also poll every `SAFETY_POLL_S`: a lost wake-up costs latency, never a
transaction. The backends send them (`sqlite.wakeup`, `postgres.wakeup`).
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

SAFETY_POLL_S = 1.0
"""Readers poll this often, in seconds, even if no wake-up comes."""


class WakeupListener:
    """Receives wake-ups: `listening` is readable after one. `on_close` is called by `close` and stops the sender."""

    def __init__(self, listening: socket.socket, on_close: Callable[[], None]) -> None:
        self._socket = listening
        self._socket.setblocking(False)
        self._on_close = on_close

    def fileno(self) -> int:
        """Return the file descriptor to wait on; it stays the same until `close`."""
        return self._socket.fileno()

    def drain(self) -> None:
        """Discard all wake-ups so far, without blocking. Call it before reading the log, so that later ones count."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(64)

    def wait(self, timeout: float = SAFETY_POLL_S) -> bool:
        """Block until a wake-up comes or `timeout` seconds are over; returns whether one came."""
        woken = bool(select.select([self._socket], [], [], timeout)[0])
        self.drain()
        return woken

    def close(self) -> None:
        """Close the socket and stop the sender."""
        self._on_close()
        self._socket.close()
