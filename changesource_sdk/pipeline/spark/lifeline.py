"""The leash between a driver and its resident tasks: a task lives only as long as its driver holds the other end.

The driver listens; a task connects and keeps the connection. Letting go, or dying in any way, closes it, and the task
ends between two transactions. Should a network keep the news from a task, the log's epoch still keeps it from writing.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

Address = tuple[str, int]


class Leash:
    """The driver's end. Tasks that hold it are told to stop by `release` or by the end of this process."""

    def __init__(self, host: str) -> None:
        self._server = socket.create_server((host, 0))
        self._held: list[socket.socket] = []
        self._lock = threading.Lock()
        self.address: Address = (host, self._server.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="changesource-leash", daemon=True).start()
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
                    self._held.append(connection)

    def release(self) -> None:
        """Let all tasks go."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for connection in self._held:
                connection.close()
            self._held.clear()


def hold(address: Address, stop: threading.Event) -> None:
    """A task's end: `stop` is set when the driver lets go or is gone; at once if it is gone already."""

    def watch() -> None:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=10) as connection:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.recv(1)
        stop.set()

    threading.Thread(target=watch, name="changesource-leash", daemon=True).start()
