"""The connection between a driver and its resident tasks: a task ends when its driver closes it or dies.

The driver listens; a task connects and keeps the connection open. When it closes, for whatever reason, the task ends
between two transactions. If the network hides that from a task, the log's epoch still keeps it from writing.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

Address = tuple[str, int]


class DriverLifeline:
    """The driver's end. Tasks that are connected stop after `release` or the end of this process."""

    def __init__(self, host: str) -> None:
        self._server = socket.create_server((host, 0))
        self._lock = threading.Lock()
        # One per connected task; the accepting thread adds, `release` closes and removes. Guarded by `_lock`.
        self._connections: list[socket.socket] = []
        self.address: Address = (host, self._server.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="changesource-lifeline", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with self._lock:
                    self._connections.append(connection)

    def release(self) -> None:
        """Stop all tasks: close their connections and accept no more."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()


def hold(address: Address, stop: threading.Event) -> None:
    """The task's end: set `stop` when the driver closes the connection or dies; at once if it cannot be reached."""

    def watch() -> None:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=10) as connection:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.recv(1)
        stop.set()

    threading.Thread(target=watch, name="changesource-lifeline", daemon=True).start()
