"""Wake-ups from Postgres: the writer notifies inside its transaction, and every endpoint listens.

A thread holds the listening connection and writes a byte to a socket of this process for each notification. When the
connection is lost it connects again and wakes the reader once, since something may have been appended in between.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading

import psycopg

from changesource_sdk.changelog.coordination.wakeup import WakeupListener
from changesource_sdk.changelog.postgres.connection import Connection, LogAddress, connect
from changesource_sdk.errors import ChangesourceError

_RETRY_S = 1.0
_JOIN_S = 2.0


def listen(address: LogAddress) -> WakeupListener:
    """Return a listener for one log, and start the thread that wakes it; `close` of the listener ends the thread."""
    listening, sending = socket.socketpair()
    relay = _NotificationRelay(address, sending)
    relay.start()
    return WakeupListener(listening, relay.stop)


class _NotificationRelay:
    """A thread that writes a byte to `sending` for each notification, and connects again after a lost connection."""

    def __init__(self, address: LogAddress, sending: socket.socket) -> None:
        self._address = address
        self._sending = sending
        self._sending.setblocking(False)
        # Set by `stop`: ends the wait between two connections; the pair of sockets ends a `select`.
        self._ended = threading.Event()
        self._end_received, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="changesource-wakeups", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with contextlib.closing(connect(self._address)) as connection:
                    connection.execute(f'LISTEN "{self._address.channel}"'.encode())
                    self._wake()
                    self._relay(connection)
            except (ChangesourceError, psycopg.Error):
                # The reader of the same log has the same failure and reports it; this thread only tries again.
                self._ended.wait(_RETRY_S)

    def _relay(self, connection: Connection) -> None:
        while True:
            end = self._end_received.fileno()
            ready, _, _ = select.select([connection.fileno(), end], [], [])
            if end in ready:
                return
            connection.pgconn.consume_input()
            while connection.pgconn.notifies():
                self._wake()

    def _wake(self) -> None:
        # If the buffer is full, the reader has many wake-ups to read already: one more is not needed.
        with contextlib.suppress(BlockingIOError):
            self._sending.send(b"!")

    def stop(self) -> None:
        """End the thread and close the sockets."""
        self._ended.set()
        self._end.send(b"!")
        self._thread.join(_JOIN_S)
        for each in (self._sending, self._end, self._end_received):
            each.close()
