"""Log records of Spark's Python workers, brought to their driver over a socket.

A worker's standard error is in Spark's own log, on the worker's host. So the driver listens (`LogReceiver`), a worker
connects when its work begins (`send_logs`) and sends each record as a line (`relayed`), and the driver logs them. A
worker never waits for the driver: records that do not fit in its queue are dropped and counted, and without a driver
they go to standard error.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import socket
import sys
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from changesource_sdk.observe.relayed import Bounded, decode, encode, relay
from service_kit.logs import event, logger

_log = logger("spark")
_QUEUED = 1000
_CONNECT_S = 10.0
_LONGEST_LINE = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogReceiverAddress:
    """Where a driver receives records. `key` is a secret that its workers send first; other connections are closed."""

    host: str
    port: int
    key: str


class LogReceiver:
    """The driver's end: listens at `address` inside the `with` block and logs what it receives, in its own threads."""

    def __init__(self, host: str) -> None:
        self._server = socket.create_server((host, 0))
        self.address = LogReceiverAddress(host, self._server.getsockname()[1], secrets.token_hex(16))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="changesource-logs", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            if lines.readline(_LONGEST_LINE).strip() != self.address.key.encode():
                return
            while line := lines.readline(_LONGEST_LINE):
                record = decode(line.decode(errors="replace").rstrip("\n"))
                log = None if record is None else logging.getLogger(record.name)
                if record is not None and log is not None and log.isEnabledFor(record.levelno):
                    log.handle(record)


class LogSender(logging.Handler):
    """A worker's end: a queue, and a thread that empties it into the socket."""

    def __init__(self, address: LogReceiverAddress) -> None:
        super().__init__()
        self.address = address
        self._lines: queue.Queue[str | None] = queue.Queue(_QUEUED)
        self._dropped = 0  # lines since the last that was queued; written under the handler's lock
        self._thread = threading.Thread(target=self._send, name="changesource-logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, or count it as dropped if the queue is full; never blocks."""
        if self._dropped:
            record.__dict__["fields"] = {**getattr(record, "fields", {}), "dropped": self._dropped}
        try:
            self._lines.put_nowait(encode(record))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def is_alive(self) -> bool:
        """Whether its thread runs; it does not in a process that was forked after it started."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Send what is queued, for at most three seconds, and end the thread."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=1.0)
        self._thread.join(2.0)
        super().close()

    def _send(self) -> None:
        try:
            with socket.create_connection((self.address.host, self.address.port), _CONNECT_S) as connection:
                connection.settimeout(None)
                connection.sendall(self.address.key.encode() + b"\n")
                while (line := self._lines.get()) is not None:
                    connection.sendall(line.encode() + b"\n")
        except OSError:
            while (line := self._lines.get()) is not None:
                print(line, file=sys.stderr, flush=True)


_sender: LogSender | None = None  # of this process, set by `send_logs`; Spark runs many tasks in one worker


def send_logs(address: LogReceiverAddress | None) -> None:
    """Send what this process logs from now on to a driver; keeps the connection if it is the same driver as before.

    None, for tests that run a task in their own process, changes nothing.
    """
    global _sender
    if address is None or (_sender is not None and _sender.address == address and _sender.is_alive()):
        return
    former, _sender = _sender, LogSender(address)
    _sender.addFilter(Bounded())
    relay([_sender])
    if former is not None:
        former.close()
    event(_log, logging.DEBUG, "log lines of this worker go to the driver")
