"""The Kafka adapter under the suite: topics of its own for each case, written to as Debezium does, or as plain rows.

With Debezium each commit is a transaction with its END, its rows in several partitions. Plain topics know no
transactions, and only one partition has an order that the suite could compare with its own.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from time import time as clock
from typing import ClassVar, TypeAlias
from uuid import UUID

from kafka import KafkaProducer

from adapters.kafka import KafkaAdapter
from changesource_sdk.adapter import Change, Delete, Insert, Row, Update
from changesource_sdk.testing.conformance import Harness
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.workloads.debezium import Collection, end, member

COLUMNS = {
    "id": "int8",
    "title": "text",
    "amount": "int4",
    "rate": "float8",
    "price": "numeric",
    "is_open": "bool",
    "made": {"type": "timestamptz", "as": "micros"},
    "due": "date",
    "at": {"type": "time", "as": "micros"},
    "reference": "uuid",
    "extra": {"type": "json", "as": "document"},
    "raw": "bytea",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALL_RECORDS = -1
"""Kafka's offset for the end of a partition, in a request to delete records."""

Event: TypeAlias = tuple[str, Row | None, Row | None]
"""Debezium's operation, and the row before and after it."""


class KafkaHarness(Harness):
    adapter = KafkaAdapter
    lacks: ClassVar[tuple[str, ...]] = ("schema changes",)
    table = "item"
    patience = 60.0
    partitions = 2

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    def create(self, folder: Path) -> None:
        prefix = self._broker.topic_name("conformance")
        self._items = Collection(f"{prefix}.public.item", [], schemas=False)
        self._ends = f"{prefix}.transaction"
        self._broker.create_topic(self._items.topic, self.partitions)
        self._broker.create_topic(self._ends)
        self._producer = KafkaProducer(bootstrap_servers=self._broker.bootstrap, acks="all")
        self._rows: dict[object, Row] = {}
        self._commits = 0

    def settings(self) -> Mapping[str, object]:
        return {
            "bootstrap": self._broker.bootstrap,
            "topics": self._items.topic,
            "format": "debezium",
            "transaction_topic": self._ends,
            "tables": {"item": {"key": ["id"], "columns": COLUMNS}},
        }

    def commit(self, changes: Sequence[Change]) -> None:
        self._write([event for change in changes for event in self._events(change)])

    def _write(self, events: Sequence[Event]) -> None:
        """One transaction of the source."""
        self._commits += 1
        name = f"{self._commits}:1"
        written = []
        for order, (op, before, after) in enumerate(events, start=1):
            event = self._items.event(op, _encoded(before), _encoded(after), member(name, order, order))
            place = int(str((after or before or {})["id"])) % self.partitions
            written.append((event.key(), event.value(), place))
        for key, value, place in written:
            self._producer.send(self._items.topic, key=key, value=value, partition=place)
        key, value = end(name, {"item": len(events)}, int(clock() * 1000))
        self._producer.send(self._ends, key=key, value=value)
        self._producer.flush()

    def forget(self) -> None:
        """As by retention: every record is deleted. The connector then writes the rows again, as in a new snapshot."""
        self._broker.delete_records(self._items.topic, dict.fromkeys(range(self.partitions), ALL_RECORDS))
        self._broker.delete_records(self._ends, {0: ALL_RECORDS})
        self._write([("c", None, row) for row in self._rows.values()])

    def _events(self, change: Change) -> list[Event]:
        match change:
            case Insert(_, row):
                self._rows[row["id"]] = row
                return [("c", None, row)]
            case Update(_, row, old_key):
                old = self._rows.pop((old_key or row)["id"])
                new = self._rows[row["id"]] = {**old, **row}
                # A row whose key changes is deleted and created, as Debezium has it.
                return [("u", None, new)] if old_key is None else [("d", old, None), ("c", None, new)]
            case Delete(_, key):
                return [("d", self._rows.pop(key["id"]), None)]
            case _:
                raise NotImplementedError(type(change).__name__)

    def close(self) -> None:
        self._producer.close()


class PlainKafkaHarness(KafkaHarness):
    lacks = ("schema changes", "transactions", "key changes")
    partitions = 1

    def settings(self) -> Mapping[str, object]:
        return {**super().settings(), "format": "upsert", "transaction_topic": "", "transactions": "record"}

    def _write(self, events: Sequence[Event]) -> None:
        for op, before, after in events:
            row = after or before or {}
            value = None if op == "d" else json.dumps(_plain(_encoded(row)), ensure_ascii=False, allow_nan=False)
            place = int(str(row["id"])) % self.partitions
            key = str(row["id"]).encode()
            self._producer.send(self._items.topic, key=key, value=value and value.encode(), partition=place)
        self._producer.flush()


def _encoded(row: Row | None) -> dict[str, object] | None:
    if row is None:
        return None
    encoded = {name: _value(name, value) for name, value in row.items()}
    # What JSON cannot hold is refused here, as the producer would.
    json.dumps(encoded, ensure_ascii=False, allow_nan=False).encode()
    return encoded


def _plain(row: dict[str, object] | None) -> dict[str, object] | None:
    """Plain rows have dates as ISO texts, where Debezium has days."""
    if row is None or not isinstance(row.get("due"), int):
        return row
    return {**row, "due": date.fromordinal(date(1970, 1, 1).toordinal() + int(str(row["due"]))).isoformat()}


def _value(name: str, value: object) -> object:
    match value:
        case None:
            return None
        case _ if name == "extra":
            return json.dumps(value)
        case datetime():
            elapsed = value - EPOCH
            return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
        case date():
            return (value - date(1970, 1, 1)).days
        case time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        case Decimal() | UUID():
            return str(value)
        case bytes():
            return b64encode(value).decode()
    return value
