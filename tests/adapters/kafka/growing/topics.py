"""Topics whose keys lie in several partitions: records where a test wants them, and what snapshots make of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from adapters.kafka import KafkaAdapter
from changesource_sdk.adapter import Delete, Insert, Position
from tests.adapters.kafka.following import Following, an_adapter
from tests.support.peers.kafka_broker import KafkaBroker

COLUMNS = {"id": "int8", "name": "text", "version": "int8"}


class Written(NamedTuple):
    """A record of a plain topic; without a name it is a tombstone."""

    partition: int
    id: int
    name: str | None
    time_ms: int
    version: int | None = None


def grown_topic(broker: KafkaBroker, partitions: int = 1, **settings: str) -> str:
    """A new topic whose records stay, however old their timestamps are."""
    return broker.create_topic(broker.topic_name("grown"), partitions, retention_ms="-1", **settings)


def write(broker: KafkaBroker, topic: str, records: Iterable[Written]) -> None:
    """Records with their partitions and timestamps, acknowledged."""
    with broker.producer() as producer:
        for record in records:
            row = {"id": record.id, "name": record.name, "version": record.version}
            value = None if record.name is None else json.dumps(row).encode()
            key = str(record.id).encode()
            producer.send(topic, key=key, value=value, partition=record.partition, timestamp_ms=record.time_ms)


def grown_adapter(broker: KafkaBroker, topic: str, **settings: object) -> KafkaAdapter:
    """An adapter of one topic whose columns are declared, as table `item`."""
    declared = {"topic": topic, "key": "id", "columns": COLUMNS}
    return an_adapter(broker, topic, **{"tables": {"item": declared}, **settings})


def names(adapter: KafkaAdapter) -> dict[object, object]:
    """Names by id in a snapshot taken now; a key that comes twice is an error."""
    return state(adapter)[0]


def state(adapter: KafkaAdapter) -> tuple[dict[object, object], Position]:
    """The same with the snapshot's position."""
    taken = adapter.snapshot()
    found: dict[object, object] = {}
    for partition in taken.partitions:
        for row in partition.rows():
            assert row["id"] not in found, f"{row} came twice"
            found[row["id"]] = row["name"]
    return found, taken.position


def followed(rows: dict[object, object], following: Following) -> dict[object, object]:
    """Names by id after what was followed came to those of a snapshot."""
    left = dict(rows)
    for transaction in list(following.transactions):
        for change in transaction.changes:
            match change:
                case Insert(_, row):
                    left[row["id"]] = row["name"]
                case Delete(_, key):
                    left.pop(key["id"], None)
                case _:
                    raise AssertionError(f"not in this format: {change}")
    return left
