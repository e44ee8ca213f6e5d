"""Records as a consumer hands them over, and batches of them, without a broker."""

from __future__ import annotations

import orjson
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.broker.consumer import Batch
from adapters.kafka.records.catalog import Catalog, TopicTable
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.types import Encoded

ITEM = TopicTable.of("items", "item", {"id": Encoded("int8"), "title": Encoded("text")}, ["id"])
NOTE = TopicTable.of("notes", "note", {"id": Encoded("int8"), "body": Encoded("text")}, ["id"])
TABLES = Catalog([ITEM, NOTE])


def settings_of(**changes: object) -> KafkaSettings:
    """Settings of the upsert format for the two topics, unless told otherwise."""
    given: dict[str, object] = {"bootstrap": "broker:9092", "topics": "items,notes", "format": "upsert", **changes}
    return KafkaSettings.parse(**given)  # type: ignore[arg-type]


def a_record(
    topic: str, offset: int, key: object, value: object | None, partition: int = 0, timestamp: int = 1000
) -> ConsumerRecord:
    """A record; bytes are taken as they are, None is a tombstone, the rest is written as JSON."""
    return ConsumerRecord(
        topic,
        partition,
        0,
        offset,
        timestamp,
        0,
        _bytes(key),
        _bytes(value),
        [],
        None,
        0,
        0,
        0,
    )


def _bytes(value: object | None) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else orjson.dumps(value)


def a_batch(*records: ConsumerRecord) -> Batch:
    """What one poll brings."""
    batch: Batch = {}
    for record in records:
        batch.setdefault((record.topic, record.partition), []).append(record)
    return batch
