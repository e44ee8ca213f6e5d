"""A consumer that does as little as possible: a bare socket after the handshake, frames counted by their headers.

Place in the flow: benchmarks measure the endpoint with it (it must never be the bottleneck), fault tests use it
as the consumer that does not read, leaves at any moment, or comes back a thousand times. Contract: it checks no
rules and sends no acknowledgements; frames are those of a server (unmasked, unfragmented); it asks as the
shipped dialect does.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

READ_BYTES = 1 << 20
HEADER_ROOM = 16
BIGGEST_FRAME = 64 << 20


class Refused(RuntimeError):
    """The endpoint answered the handshake with something else than 101; `status` is what it said."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status = status
        self.body = body


@dataclass(slots=True)
class Counted:
    """What came in so far: `commit` is the payload of the last commit (or control) frame, `close` of a close frame."""

    frames: int = 0
    commits: int = 0
    size: int = 0
    commit: bytes = b""
    close: bytes | None = None

    @property
    def watermark(self) -> str:
        """The watermark of the last commit."""
        message = json.loads(self.commit)
        assert message[0] == "commit", f"expected a commit, got {message}"
        watermark: str = message[2]["watermark"]
        return watermark


class RawConsumer:
    """One connection; `counted` grows as `receive()` is called, and only then is anything read."""

    def __init__(
        self,
        url: str,
        *,
        app_id: str = "zero",
        shard: int = 0,
        last_watermark: str | None = None,
        replica_version: str | None = None,
        socket_buffer: int | None = None,
        timeout: float = 60,
        keep: bool = False,
    ) -> None:
        self.counted = Counted()
        self._keep: list[bytes] | None = [] if keep else None
        asked: dict[str, str] = {"appID": app_id, "shardNum": str(shard)}
        if last_watermark is not None:
            asked |= {"lastWatermark": last_watermark, "replicaVersion": replica_version or last_watermark}
        parts = urlsplit(url)
        self._socket = socket.socket()
        if socket_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, socket_buffer)
        self._socket.settimeout(timeout)
        self._socket.connect((parts.hostname or "127.0.0.1", parts.port or 80))
        query = "&".join(filter(None, [parts.query, urlencode(asked)]))
        self._buffer = bytearray(READ_BYTES + HEADER_ROOM)
        self._filled = self._handshake(f"{parts.path}?{query}", parts.netloc)
        self._count()

    def __enter__(self) -> RawConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def receive(self) -> int:
        """Read once, count what came, and return the number of bytes; 0 when the endpoint has closed."""
        if self._filled == len(self._buffer) - HEADER_ROOM:
            assert len(self._buffer) < BIGGEST_FRAME, "a frame larger than any the tests make"
            self._buffer.extend(bytes(len(self._buffer)))
        count = self._socket.recv_into(memoryview(self._buffer)[self._filled : -HEADER_ROOM])
        self._filled += count
        self._count()
        return count

    def receive_commits(self, number: int) -> Counted:
        """Read until this many commits have come since the connection was opened."""
        while self.counted.commits < number:
            if self.receive() == 0:
                raise AssertionError(f"closed after {self.counted}")
        return self.counted

    def receive_up_to(self, watermark: str) -> Counted:
        """Read until the commit of this watermark, or a later one, has come."""
        while not self.counted.commit or self.counted.watermark < watermark:
            if self.receive() == 0:
                raise AssertionError(f"closed after {self.counted}")
        return self.counted

    def receive_close(self) -> tuple[int, str]:
        """Read until the endpoint closes the stream; the code and the reason it gives."""
        while self.counted.close is None:
            if self.receive() == 0:
                raise AssertionError("the connection ended without a close frame")
        return int.from_bytes(self.counted.close[:2], "big"), self.counted.close[2:].decode()

    def messages(self) -> list[list[Any]]:
        """Read once and return the messages that came since the last call; for consumers opened with `keep`."""
        assert self._keep is not None
        if self.receive() == 0:
            raise AssertionError(f"closed after {self.counted}")
        payloads, self._keep = self._keep, []
        return [json.loads(payload) for payload in payloads]

    def send(self, message: str | bytes) -> None:
        """Send one message, text or binary, masked as a client must."""
        payload = message.encode() if isinstance(message, str) else message
        first = 0x81 if isinstance(message, str) else 0x82
        head = struct.pack(">BBQ", first, 0x80 | 127, len(payload))
        self._socket.sendall(head + bytes(4) + payload)  # a mask of zeros leaves the payload as it is

    def close(self) -> None:
        """Go away without a word."""
        self._socket.close()

    def _handshake(self, target: str, host: str) -> int:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        self._socket.sendall("\r\n".join(lines).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            if not (more := self._socket.recv(65536)):
                break
            answer += more
        head, _, rest = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1]) if head else 0
        if status != 101:
            raise Refused(status, rest.decode(errors="replace"))
        self._buffer[: len(rest)] = rest
        return len(rest)

    def _count(self) -> None:
        """Walk the whole frames in the buffer; what is left of an unfinished one moves to the front.

        A header may be cut off at `filled`: what is read beyond it is stale, but then its frame ends beyond it too.
        """
        buffer, filled, counted, keep = self._buffer, self._filled, self.counted, self._keep
        position = frames = 0
        while filled - position >= 2:
            start = position + 2
            size = buffer[position + 1]
            if size == 126:
                start += 2
                size = (buffer[position + 2] << 8) | buffer[position + 3]
            elif size == 127:
                start += 8
                size = int.from_bytes(buffer[position + 2 : start], "big")
            end = start + size
            if end > filled:
                break
            if buffer[position] == 0x81:
                frames += 1
                if keep is not None:
                    keep.append(bytes(buffer[start:end]))
                if buffer[start + 2] == 0x63:  # the c of ["commit" or ["control"
                    counted.commits += 1
                    counted.commit = bytes(buffer[start:end])
            elif buffer[position] == 0x88:
                counted.close = bytes(buffer[start:end])
            position = end
        if position:
            buffer[: filled - position] = buffer[position:filled]
        self._filled = filled - position
        counted.frames += frames
        counted.size += position
