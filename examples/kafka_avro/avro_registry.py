"""A decoder for topics of Avro records whose schemas are in a schema registry (Confluent's wire format).

    SCHEMA_REGISTRY_URL=http://registry:8081 changesource serve kafka --set decoder=avro_registry:AvroRegistry …

A record begins with a zero byte and the number of its schema; the schema is asked for once. Values are given with a
schema of Kafka Connect's, so that the adapter takes the columns' types from it. Reads what Avro's specification calls
binary encoding, without schema resolution: every record is read by the schema it was written with.
"""

from __future__ import annotations

import json
import os
import struct
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

Read = Callable[[BytesIO], Any]
PLAIN = {"int": "int32", "long": "int64"}
NAMED = {
    "date": "org.apache.kafka.connect.data.Date",
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "uuid": "io.debezium.data.Uuid",
}


class AvroRegistry:
    """What the setting `decoder` names. Holds each schema once, with what it describes and how it is read."""

    def __init__(self) -> None:
        self._url = os.environ["SCHEMA_REGISTRY_URL"].rstrip("/")
        self._known: dict[int, tuple[dict[str, Any], Read]] = {}

    def key(self, topic: str, data: bytes) -> object:
        return self._decoded(data)[1]

    def value(self, topic: str, data: bytes) -> object:
        schema, payload = self._decoded(data)
        return {"schema": schema, "payload": payload}

    def _decoded(self, data: bytes) -> tuple[dict[str, Any], object]:
        magic, number = struct.unpack_from(">bI", data)
        if magic != 0:
            raise ValueError("it does not begin with the number of a schema")
        if number not in self._known:
            avro = self._fetched(number)
            self._known[number] = described(avro, {}), reader(avro, {})
        schema, read = self._known[number]
        return schema, read(BytesIO(data[5:]))

    def _fetched(self, number: int) -> Any:
        with urllib.request.urlopen(f"{self._url}/schemas/ids/{number}", timeout=30) as answer:
            return json.loads(json.load(answer)["schema"])


def described(avro: Any, names: dict[str, Any]) -> dict[str, Any]:
    """A schema of Avro's as one of Kafka Connect's."""
    if isinstance(avro, list):
        others = [kind for kind in avro if kind != "null"]
        found = described(others[0], names) if len(others) == 1 else {"type": "struct"}
        return {**found, "optional": "null" in avro}
    if isinstance(avro, str):
        return described(names[avro], names) if avro in names else {"type": PLAIN.get(avro, avro), "optional": False}
    if "name" in avro:
        names[avro["name"]] = avro
    if isinstance(avro["type"], dict | list):
        return described(avro["type"], names)
    kind = {"record": "struct", "enum": "string", "fixed": "bytes"}.get(avro["type"])
    found = {"type": kind or PLAIN.get(avro["type"], avro["type"]), "optional": False}
    if avro["type"] == "record":
        found["fields"] = [{**described(field["type"], names), "field": field["name"]} for field in avro["fields"]]
    if name := avro.get("connect.name") or NAMED.get(avro.get("logicalType", "")):
        found |= {"name": name, "parameters": {"scale": str(avro.get("scale", 0))}}
    return found


def reader(avro: Any, names: dict[str, Read]) -> Read:
    """How values of a schema are read."""
    if isinstance(avro, list):
        choices = [reader(kind, names) for kind in avro]
        return lambda data: choices[_long(data)](data)
    if isinstance(avro, str):
        return BASIC[avro] if avro in BASIC else lambda data: names[avro](data)
    match avro["type"]:
        case "record":
            read = partial(_record, fields := [])
            names[avro["name"]] = read
            fields += [(field["name"], reader(field["type"], names)) for field in avro["fields"]]
        case "enum":
            read = names[avro["name"]] = lambda data, symbols=avro["symbols"]: symbols[_long(data)]
        case "fixed":
            read = names[avro["name"]] = lambda data, size=avro["size"]: b64encode(data.read(size)).decode()
        case "array":
            read = partial(_array, reader(avro["items"], names))
        case "map":
            read = partial(_map, reader(avro["values"], names))
        case kind:
            read = reader(kind, names)
    return read


def _long(data: BytesIO) -> int:
    """An integer of any size: seven bits a byte, the sign in the lowest bit."""
    shift = result = 0
    while True:
        byte = data.read(1)[0]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1)
        shift += 7


def _bytes(data: BytesIO) -> bytes:
    return data.read(_long(data))


def _record(fields: list[tuple[str, Read]], data: BytesIO) -> dict[str, Any]:
    return {name: read(data) for name, read in fields}


def _blocks(read: Read, data: BytesIO) -> list[Any]:
    found = []
    while count := _long(data):
        if count < 0:
            _long(data)  # the block's size, for those who skip it
        found += [read(data) for _ in range(abs(count))]
    return found


def _array(read: Read, data: BytesIO) -> list[Any]:
    return _blocks(read, data)


def _map(read: Read, data: BytesIO) -> dict[str, Any]:
    return dict(_blocks(lambda data: (_bytes(data).decode(), read(data)), data))


BASIC: dict[str, Read] = {
    "null": lambda data: None,
    "boolean": lambda data: data.read(1) == b"\1",
    "int": _long,
    "long": _long,
    "float": lambda data: struct.unpack("<f", data.read(4))[0],
    "double": lambda data: struct.unpack("<d", data.read(8))[0],
    "bytes": lambda data: b64encode(_bytes(data)).decode(),
    "string": lambda data: _bytes(data).decode(),
}
