"""The Avro decoder of the examples, on a real topic, with a registry that does what the adapter asks of one."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from adapters.kafka import KafkaAdapter
from changesource_sdk.adapter import Insert
from tests.support.kafka_broker import KafkaBroker

FOLDER = Path(__file__).parents[2] / "examples" / "kafka_avro"
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


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Registry]]:
    Registry.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", f"http://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield Registry
    server.shutdown()
    server.server_close()


def number(value: int) -> bytes:
    """An integer as Avro writes it."""
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def order(key: int, note: str | None) -> bytes:
    """An order of two lines, due on day 19,800, for 12.34."""
    said = number(0) if note is None else number(1) + text(note.encode())
    lines = number(2) + text(b"a") + text(b"b") + number(0)
    sizes = number(-1) + number(11) + text(b"xl") + struct.pack("<d", 2.5) + number(0)
    price = text((1234).to_bytes(2, "big"))
    return number(key) + said + number(19_800) + price + number(1) + lines + sizes + b"\1"


def wire(schema: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema) + data


def test_avro_records_become_rows_of_typed_columns(kafka: KafkaBroker, registry: type[Registry]) -> None:
    topic = kafka.create_topic(kafka.topic_name("shop.orders"))
    decoder = "avro_registry:AvroRegistry"
    tables = {"orders": {"topic": topic}}
    adapter = KafkaAdapter(kafka.bootstrap, topic, "upsert", decoder=decoder, tables=tables)
    with kafka.producer() as producer:
        for key, note in ((1, "first"), (-300, None), (1, "second")):
            producer.send(topic, key=wire(1, number(key)), value=wire(2, order(key, note)))
    taken = adapter.snapshot()
    assert taken.tables is not None
    assert {column.name: column.data_type for column in taken.tables[0].columns} == {
        "id": "int8",
        "note": "text",
        "due": "date",
        "price": "numeric",
        "state": "text",
        "lines": "json",
        "sizes": "json",
        "is_paid": "bool",
    }
    (partition,) = taken.partitions
    rows = {row["id"]: row for row in partition.rows()}
    assert {key: row["note"] for key, row in rows.items()} == {1: "second", -300: None}
    assert rows[1]["due"] == 19_800 * 86_400_000
    assert str(rows[1]["price"]) == "12.34"
    assert (rows[1]["state"], rows[1]["lines"], rows[1]["sizes"]) == ("DONE", ["a", "b"], {"xl": 2.5})

    with kafka.producer() as producer:
        producer.send(topic, key=wire(1, number(2)), value=wire(2, order(2, "live")))
    transaction = next(iter(adapter.changes(taken.position)))
    (change,) = transaction.changes
    assert isinstance(change, Insert)
    assert (change.row["id"], change.row["note"]) == (2, "live")
    adapter.close()
    assert set(registry.asked) == {"/schemas/ids/1", "/schemas/ids/2"}
