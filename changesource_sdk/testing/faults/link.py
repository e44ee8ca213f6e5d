"""A TCP proxy between a client and a server, with faults on the way.

Point the client (an adapter, a cache) at `link.port` instead of the server. Whatever arrives from either side is an
opportunity for a planned fault.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from changesource_sdk.testing.faults.adapter_faults import DELAY_S, Planned

PIECE = 1 << 16


class Link:
    """A listening port of the loopback interface that leads to a server. Invariant: bytes pass in order, or not at all.

    A dropped connection is cut wherever it is, in the middle of a message too; the next one works. One whose
    server ends is closed.
    """

    def __init__(self, host: str, port: int, drop: Planned | None = None, delay: Planned | None = None) -> None:
        # (host, port) of the server for connections from now on; tests set it to move clients to another server.
        self.target = (host, port)
        # The port each connection was made to, in order; appended by the connection's thread.
        self.opened: list[int] = []
        self._drop = drop
        self._delay = delay
        self._closed = threading.Event()
        # Both ends of every connection since the last `cut`; appended by the connection's thread.
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, name="faulty link", daemon=True).start()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Break every open connection; the next one is let through."""
        sockets, self._sockets = self._sockets, []
        for end in sockets:
            _cut(end)

    def close(self) -> None:
        """Stop listening and cut what is open."""
        self._closed.set()
        _cut(self._server)
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed.is_set():
                client, _ = self._server.accept()
                threading.Thread(target=self._connect, args=(client, self.target), daemon=True).start()

    def _connect(self, client: socket.socket, target: tuple[str, int]) -> None:
        try:
            server = socket.create_connection(target)
        except OSError:
            _cut(client)
            return
        self.opened.append(target[1])
        self._sockets += (client, server)
        threading.Thread(target=self._relay, args=(server, client, "from the store"), daemon=True).start()
        self._relay(client, server, "to the store")

    def _relay(self, source: socket.socket, sink: socket.socket, where: str) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE):
                if self._delay is not None and self._delay.fires(where):
                    self._closed.wait(DELAY_S)
                if self._drop is not None and self._drop.fires(where):
                    sink.sendall(piece[: len(piece) // 2])
                    break
                sink.sendall(piece)
        _cut(source)
        _cut(sink)


def _cut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
