"""Orders as Avro records, and a schema registry that does what a decoder asks of one.

Place in the flow: producers of tests write `key` and `order`; the decoder of `examples/kafka_avro` is told where
`serving` listens. Contract: schema 1 is a key's, schema 2 an order's, in Confluent's wire format.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from tests.support.tools import REPOSITORY

DECODER_FOLDER = REPOSITORY / "examples" / "kafka_avro"
SCHEMAS = {
    1: {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]},
    2: {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "due", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}},
            {"name": "lines", "type": {"type": "array", "items": "string"}},
            {"name": "sizes", "type": {"type": "map", "values": "double"}},
            {"name": "is_paid", "type": "boolean"},
        ],
    },
}


class Registry(BaseHTTPRequestHandler):
    """Answers `GET /schemas/ids/N`."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        number = int(self.path.removeprefix("/schemas/ids/"))
        body = json.dumps({"schema": json.dumps(SCHEMAS[number])}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test has its own words."""


@contextmanager
def serving() -> Iterator[str]:
    """The address of a registry, for the length of a block."""
    Registry.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def key(number: int) -> bytes:
    """A record's key."""
    return _wire(1, _number(number))


def _number(value: int) -> bytes:
    """An integer as Avro writes it."""
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])


def _text(value: bytes) -> bytes:
    return _number(len(value)) + value


def order(number: int, note: str | None) -> bytes:
    """The value of an order of two lines, due on day 19,800, for 12.34."""
    said = _number(0) if note is None else _number(1) + _text(note.encode())
    lines = _number(2) + _text(b"a") + _text(b"b") + _number(0)
    sizes = _number(-1) + _number(11) + _text(b"xl") + struct.pack("<d", 2.5) + _number(0)
    price = _text((1234).to_bytes(2, "big"))
    return _wire(2, _number(number) + said + _number(19_800) + price + _number(1) + lines + sizes + b"\1")


def _wire(schema: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema) + data
