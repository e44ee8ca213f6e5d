"""Many clients in one thread, doing as little as possible: bare sockets, and bytes that are searched, not parsed.

They must not be the bottleneck. A row is counted by a word that each row patch has exactly once. Some clients walk
through the frames and look at the commit time in the rows they get, for the latency; the others, once their query is
there, only count.
"""

from __future__ import annotations

import re
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

from benchmarks.cache.workload import CLIENT_SCHEMA, bucket_query
from protocol.sync.handshake import encode_subprotocol

READ_BYTES = 1 << 18
PING_SECONDS = 4.0
_ROW = b'"tableName"'
_GOT = b'"gotQueriesPatch"'
_CREATED = re.compile(rb'"created":([0-9.e+]+)')
_PING = b'["ping",{}]'
_ERROR = b'["error"'


class Client:
    """One client group with one client and one query."""

    def __init__(self, port: int, number: int, bucket: int, *, run: str, samples: bool = False) -> None:
        self.has_query = False
        self.rows = 0
        self.latencies: list[float] = []
        self._samples = samples
        self._buffer = b""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(_request(port, f"{run}c{number}", f"{run}g{number}", bucket))
        self.socket.setblocking(False)
        self._in_http = True

    def receive(self) -> None:
        """Take what is there."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise AssertionError(f"the cache closed a client's connection: {self._buffer[-300:]!r}")
        if self.has_query and not self._samples:
            self._scan(self._buffer + data)
            return
        self._buffer += data
        if not self._in_http or self._skip_http():
            self._walk()

    def ping(self) -> None:
        """Show that the client is there."""
        self.socket.send(_masked(0x81, _PING))

    def _skip_http(self) -> bool:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return False
        assert b" 101 " in head.split(b"\r\n")[0], head
        self._buffer, self._in_http = rest, False
        return True

    def _scan(self, data: bytes) -> None:
        """Count rows in whatever came; of what may be half a word the rest is kept for the next time."""
        if _ERROR in data:
            raise AssertionError(data.decode(errors="replace"))
        self.rows += data.count(_ROW)
        self._buffer = data[1 - len(_ROW) :]

    def _walk(self) -> None:
        buffer, position = self._buffer, 0
        while (frame := _frame(buffer, position)) is not None:
            start, end = frame
            kind = buffer[position] & 0x0F
            if kind == 9:
                self.socket.send(_masked(0x8A, buffer[start:end]))
            elif kind == 1:
                self._take(buffer[start:end])
            position = end
        self._buffer = buffer[position:]

    def _take(self, payload: bytes) -> None:
        if payload.startswith(b'["pokePart"'):
            self.rows += payload.count(_ROW)
            self.has_query = self.has_query or _GOT in payload
            if self._samples:
                now = time.time() * 1000
                self.latencies += [now - created for found in _CREATED.findall(payload) if (created := float(found))]
        elif payload.startswith(_ERROR):
            raise AssertionError(payload.decode())


class Swarm:
    """All clients, read together."""

    def __init__(self, port: int, buckets: Sequence[int], *, run: str, samples: int = 10) -> None:
        self._selector = selectors.DefaultSelector()
        self._pinged = time.monotonic()
        self.clients: list[Client] = []
        every = max(1, len(buckets) // samples)
        for number, bucket in enumerate(buckets):
            client = Client(port, number, bucket, run=run, samples=number % every == 0)
            self.clients.append(client)
            self._selector.register(client.socket, selectors.EVENT_READ, client)
            self._read(0)

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for client in self.clients:
            client.socket.close()

    def until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Read until the condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                rows = sorted(client.rows for client in self.clients)
                raise AssertionError(f"waited {seconds:g} s for {what}; rows per client {rows[0]} to {rows[-1]}")
            self._read(0.05)

    def run_for(self, seconds: float, each_round: Callable[[float], None]) -> None:
        """Read for a while; `each_round` is called often, with the seconds since the start."""
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds:
            each_round(passed)
            self._read(0.005)

    def all_have_query(self) -> bool:
        return all(client.has_query for client in self.clients)

    def fewest_rows(self) -> int:
        return min(client.rows for client in self.clients)

    def latencies(self) -> list[float]:
        """Milliseconds from commit to poke, of all sampled clients since the last call, in order."""
        found: list[float] = []
        for client in self.clients:
            found += client.latencies
            client.latencies = []
        return sorted(found)

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            key.data.receive()
        now = time.monotonic()
        if now - self._pinged > PING_SECONDS:
            self._pinged = now
            for client in self.clients:
                client.ping()


def _request(port: int, client: str, group: str, bucket: int) -> bytes:
    put = {"op": "put", "hash": f"bucket{bucket}", "ast": bucket_query(bucket), "ttl": 300_000}
    init = {"desiredQueriesPatch": [put], "clientSchema": CLIENT_SCHEMA, "activeClients": [client]}
    parameters = {"clientID": client, "clientGroupID": group, "baseCookie": "", "ts": "1", "lmid": "0"}
    parameters |= {"wsid": client, "profileID": "p1", "userID": "bench"}
    lines = [
        f"GET /sync/v51/connect?{urlencode(parameters)} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Protocol: {encode_subprotocol(['initConnection', init], None)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _frame(buffer: bytes, position: int) -> tuple[int, int] | None:
    """Where the payload of the frame at `position` begins and ends; None if it is not all there."""
    if len(buffer) - position < 2:
        return None
    size, start = buffer[position + 1] & 0x7F, position + 2
    if size == 126:
        size, start = int.from_bytes(buffer[start : start + 2], "big"), start + 2
    elif size == 127:
        size, start = int.from_bytes(buffer[start : start + 8], "big"), start + 8
    return None if start + size > len(buffer) else (start, start + size)


def _masked(first: int, payload: bytes) -> bytes:
    return struct.pack(">BB", first, 0x80 | len(payload)) + bytes(4) + payload  # a mask of zeros
