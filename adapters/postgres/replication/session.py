"""A replication session: payloads of the stream in, confirmations out.

psycopg runs the connection, this module the copy-both conversation on top of it. One thread receives, any thread may
confirm or close. A thread of its own reports to the server every few seconds, so that a reader that is held up does not
look dead to it. The server may forget what was confirmed: `confirm` is for positions that are durable downstream.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import psycopg
from psycopg.pq import ExecStatus

from adapters.postgres.connection import Connection, connect, naming_the_cause, quoted
from adapters.postgres.replication.pgoutput import POSTGRES_EPOCH_MS

REPORT_EVERY_S = 10.0
CONFIRM_WITHIN_S = 0.2
"""Confirmations are gathered this long before the server is told."""
BATCH = 1000
_HEADER_BYTES = 25
_DATA, _ALIVE = b"wk"
_KEEPALIVE = Struct(">cqq?").unpack
_STATUS = Struct(">cqqqq?").pack


class Payload(NamedTuple):
    """A message of the stream."""

    data: bytes


class Keepalive(NamedTuple):
    """The server has sent everything before `lsn`; `wants_reply` asks to confirm it soon."""

    lsn: int
    wants_reply: bool


def lsn_text(lsn: int) -> str:
    """A position as Postgres writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """A position that Postgres wrote."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def server_identity(session: Connection) -> tuple[str, int]:
    """The server's system identifier and timeline; `session` is one for replication."""
    found = session.execute("IDENTIFY_SYSTEM").fetchone()
    assert found is not None
    return str(found[0]), int(found[1])


class ReplicationSession:
    """One stream from one slot. Invariant: the server is told nothing beyond what was confirmed here."""

    def __init__(self, dsn: str, slot: str, publications: Sequence[str], start: int) -> None:
        """Start streaming behind `start`. Raises what `connection` makes of a refusal."""
        self._dsn = dsn
        self._lock = threading.Lock()
        self._connection = connect(dsn, replication=True)
        self._pgconn = self._connection.pgconn
        self._confirmed = self._received = start
        self._due = threading.Event()
        self._closed = threading.Event()
        self._awake, self._waker = socket.socketpair()
        try:
            with naming_the_cause(dsn):
                self._start(slot, publications, start)
        except BaseException:
            self.close()
            raise
        self._reporter = threading.Thread(target=self._report, name="changesource-confirm", daemon=True)
        self._reporter.start()

    def _start(self, slot: str, publications: Sequence[str], start: int) -> None:
        names = ",".join(map(quoted, publications)).replace("'", "''")
        command = (
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(start)} "
            f"(proto_version '1', publication_names '{names}', messages 'true')"
        )
        result = self._pgconn.exec_(command.encode())
        if result.status != ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(result)

    def receive(self, timeout: float) -> list[Payload | Keepalive]:
        """What has come, waiting for something; empty when the time is over or the session was closed."""
        with naming_the_cause(self._dsn):
            try:
                found = self._take()
                if not found:
                    self._wait(timeout)
                    found = self._take()
            except psycopg.Error:
                if self._closed.is_set():
                    return []
                raise
        return found

    def _wait(self, timeout: float) -> None:
        """Until something has come or the session is closed."""
        poll = select.poll()
        for descriptor in (self._pgconn.socket, self._awake.fileno()):
            poll.register(descriptor, select.POLLIN)
        poll.poll(timeout * 1000)

    def _take(self) -> list[Payload | Keepalive]:
        """All that is at hand, up to a limit."""
        found: list[Payload | Keepalive] = []
        with self._lock:
            if self._closed.is_set():
                return found
            self._pgconn.consume_input()
            while len(found) < BATCH:
                size, data = self._pgconn.get_copy_data(1)
                if size == 0:
                    break
                if size < 0:
                    self._ended()
                if data[0] == _DATA:
                    found.append(Payload(bytes(data[_HEADER_BYTES:])))
                elif data[0] == _ALIVE:
                    found.append(self._keepalive(bytes(data)))
        return found

    def _keepalive(self, data: bytes) -> Keepalive:
        _, lsn, _, wants_reply = _KEEPALIVE(data)
        self._received = max(self._received, lsn)
        if wants_reply:
            self._send_status()
        return Keepalive(lsn, wants_reply)

    def _ended(self) -> None:
        """The server ended the stream: raise why."""
        result = self._pgconn.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError("the server ended the stream")

    def confirm(self, lsn: int) -> None:
        """Everything up to `lsn` is durable; the server is told soon."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._due.set()

    def _report(self) -> None:
        """Tell the server what is confirmed, soon after it was and every few seconds; a lost server is the reader's."""
        while not self._closed.is_set():
            if self._due.wait(REPORT_EVERY_S):
                self._closed.wait(CONFIRM_WITHIN_S)
            self._due.clear()
            with self._lock:
                if self._closed.is_set():
                    return
                try:
                    self._send_status()
                except psycopg.Error:
                    return

    def _send_status(self) -> None:
        clock = int(time.time() * 1_000_000) - POSTGRES_EPOCH_MS * 1000
        received = max(self._received, self._confirmed)
        self._pgconn.put_copy_data(_STATUS(b"r", received, self._confirmed, self._confirmed, clock, False))
        self._pgconn.flush()

    def close(self) -> None:
        """Tell the server what is confirmed, end the session and make a waiting `receive` return."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._due.set()
            try:
                if self._pgconn.transaction_status != psycopg.pq.TransactionStatus.UNKNOWN:
                    self._send_status()
            except psycopg.Error:
                pass
            self._waker.send(b"x")
            self._connection.close()
