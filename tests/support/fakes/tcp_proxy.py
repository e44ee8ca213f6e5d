"""A TCP proxy in front of several servers: one address for a consumer, whose other end can be moved.

Place in the flow: it stands where a load balancer would between a cache and its endpoints. A connection goes to the
target of the moment it is opened; one whose target dies is closed, and the next goes to wherever the target is then.
"""

from __future__ import annotations

import contextlib
import socket
import threading

PIECE = 1 << 16


class TcpProxy:
    """Listens on a free port of the loopback interface until `close`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.opened: list[int] = []  # the target of every connection made, in order
        self._ends: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def cut(self) -> None:
        """Break every connection there is; the next one goes through."""
        ends, self._ends = self._ends, []
        for end in ends:
            _shut(end)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._join(client, self.target)

    def _join(self, client: socket.socket, target: int) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", target), timeout=60)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        self.opened.append(target)
        self._ends += (client, server)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=_relay, args=(source, sink), daemon=True).start()


def _relay(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            sink.sendall(piece)
    for end in (source, sink):
        _shut(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
