"""Wake-ups from Postgres: the writer notifies inside its transaction, and every endpoint listens.

A thread holds the listening connection and rings a socket of this process; when the connection is lost it connects
again and rings once, since something may have happened in between.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading

import psycopg

from changesource_sdk.changelog.postgres.connection import Connection, LogAddress, connect
from changesource_sdk.changelog.wakeup_listener import SocketEar
from changesource_sdk.errors import ChangesourceError

_RETRY_S = 1.0
_JOIN_S = 2.0


class PostgresEar(SocketEar):
    """An `Ear` on one log. Invariant: while a connection can be had, a notification rings within its travel time."""

    def __init__(self, address: LogAddress) -> None:
        listening, self._bell = socket.socketpair()
        super().__init__(listening)
        self._bell.setblocking(False)
        self._address = address
        self._ended = threading.Event()
        self._end_heard, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="changesource-ear", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with contextlib.closing(connect(self._address)) as connection:
                    connection.execute(f'LISTEN "{self._address.channel}"'.encode())
                    self._ring()
                    self._relay(connection)
            except (ChangesourceError, psycopg.Error):
                # The reader of the same log meets the same failure and tells it; here it only means to try again.
                self._ended.wait(_RETRY_S)

    def _relay(self, connection: Connection) -> None:
        while True:
            end = self._end_heard.fileno()
            ready, _, _ = select.select([connection.fileno(), end], [], [])
            if end in ready:
                return
            connection.pgconn.consume_input()
            while connection.pgconn.notifies():
                self._ring()

    def _ring(self) -> None:
        # A full buffer means that it has been ringing unheard for long, which is loud enough.
        with contextlib.suppress(BlockingIOError):
            self._bell.send(b"!")

    def close(self) -> None:
        """Stop listening."""
        self._ended.set()
        self._end.send(b"!")
        self._thread.join(_JOIN_S)
        for end in (self._bell, self._end, self._end_heard):
            end.close()
        super().close()
