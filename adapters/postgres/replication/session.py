"""A replication session: receives the payloads of the stream and sends confirmations.

psycopg makes the connection; this module speaks the copy-both protocol over it. One thread receives, any thread may
confirm or close. The thread `changesource-confirm` reports to the server every few seconds, so that the server does not
take a slow reader for dead (`wal_sender_timeout`). The server may discard what was confirmed, so `confirm` is only for
positions that are durable in the log.
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

from adapters.postgres.connection import Connection, connect, quoted, translated_errors
from adapters.postgres.position import lsn_text
from adapters.postgres.replication.pgoutput import POSTGRES_EPOCH_MS

REPORT_EVERY_S = 10.0
CONFIRM_WITHIN_S = 0.2
"""Confirmations are collected this long and sent together."""
BATCH = 1000
_HEADER_BYTES = 25
_DATA, _ALIVE = b"wk"
_KEEPALIVE = Struct(">cqq?").unpack
_STATUS = Struct(">cqqqq?").pack


class Payload(NamedTuple):
    data: bytes


class Keepalive(NamedTuple):
    """The server has sent everything before `lsn`; with `wants_reply` it waits for a confirmation."""

    lsn: int
    wants_reply: bool


def server_identity(session: Connection) -> tuple[str, int]:
    """The server's system identifier and timeline; `session` must be a replication session."""
    row = session.execute("IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    return str(row[0]), int(row[1])


class ReplicationSession:
    """One stream from one slot. Invariant: nothing beyond `_confirmed` is reported to the server as flushed."""

    def __init__(self, dsn: str, slot: str, publications: Sequence[str], start: int) -> None:
        """Start streaming after `start`. Raises `AdapterError` if the server refuses."""
        self._dsn = dsn
        # Held for every use of the libpq connection: the reading thread and the confirming thread share it.
        self._lock = threading.Lock()
        self._connection = connect(dsn, replication=True)
        self._pgconn = self._connection.pgconn
        # The newest LSN that is durable in the log; written by `confirm`.
        self._confirmed = start
        # The newest LSN of a keepalive; written by the reading thread under `_lock`.
        self._received = start
        # Set when `_confirmed` has increased, and by `close`; wakes the confirming thread.
        self._due = threading.Event()
        self._closed = threading.Event()
        # `close` writes to `_waker`, which ends a `poll` in `receive`.
        self._awake, self._waker = socket.socketpair()
        try:
            with translated_errors(dsn):
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
        """The messages that have arrived; waits up to `timeout` seconds for one.

        Empty after that time, or after `close`.
        """
        with translated_errors(self._dsn):
            try:
                messages = self._take()
                if not messages:
                    self._wait(timeout)
                    messages = self._take()
            except psycopg.Error:
                if self._closed.is_set():
                    return []
                raise
        return messages

    def _wait(self, timeout: float) -> None:
        """Wait for input or for `close`."""
        poll = select.poll()
        for descriptor in (self._pgconn.socket, self._awake.fileno()):
            poll.register(descriptor, select.POLLIN)
        poll.poll(timeout * 1000)

    def _take(self) -> list[Payload | Keepalive]:
        """The messages that libpq has, at most `BATCH`."""
        messages: list[Payload | Keepalive] = []
        with self._lock:
            if self._closed.is_set():
                return messages
            self._pgconn.consume_input()
            while len(messages) < BATCH:
                size, data = self._pgconn.get_copy_data(1)
                if size == 0:
                    break
                if size < 0:
                    self._ended()
                if data[0] == _DATA:
                    messages.append(Payload(bytes(data[_HEADER_BYTES:])))
                elif data[0] == _ALIVE:
                    messages.append(self._keepalive(bytes(data)))
        return messages

    def _keepalive(self, data: bytes) -> Keepalive:
        _, lsn, _, wants_reply = _KEEPALIVE(data)
        self._received = max(self._received, lsn)
        if wants_reply:
            self._send_status()
        return Keepalive(lsn, wants_reply)

    def _ended(self) -> None:
        """Raise the reason for which the server ended the stream."""
        result = self._pgconn.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError("the server ended the stream")

    def confirm(self, lsn: int) -> None:
        """Everything up to `lsn` is durable; reported to the server within `CONFIRM_WITHIN_S`. Any thread."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._due.set()

    def _report(self) -> None:
        """Thread `changesource-confirm`: report soon after `confirm`, and at least every `REPORT_EVERY_S`.

        Ends quietly when the connection is lost: the reading thread meets the same error and raises it.
        """
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
        """Report what is confirmed, end the session and make a waiting `receive` return. Any thread; idempotent."""
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
