"""The listening end of wake-ups that arrive on a socket of this process."""

from __future__ import annotations

import contextlib
import select
import socket

from changesource_sdk.changelog.store import SAFETY_POLL_S


class SocketEar:
    """An `Ear` whose wake-ups are bytes on a socket; how they get there is the subclass's part."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """What to wait on."""
        return self._socket.fileno()

    def drain(self) -> None:
        """Forget all wake-ups received so far; call it before reading the log."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(64)

    def wait(self, timeout: float = SAFETY_POLL_S) -> bool:
        """Block until woken or the time is over; whether a wake-up came."""
        woken = bool(select.select([self._socket], [], [], timeout)[0])
        self.drain()
        return woken

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
