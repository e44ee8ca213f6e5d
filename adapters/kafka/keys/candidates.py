"""The keys that a record is about, as candidates for the newest record of each (`key_order`). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.key_order import Candidate, is_whole, key_bytes, keys_of, order_of
from adapters.kafka.records.decoding import Decoded, Unreadable
from adapters.kafka.records.reading import TopicReading
from adapters.kafka.records.upsert import whole_key
from changesource_sdk import Change, Delete


def candidates_in(
    reading: TopicReading, order_by: str, record: ConsumerRecord, decoded: Decoded, change: Change
) -> list[tuple[bytes, Candidate]]:
    """A change as a candidate for each key that it is about."""
    table = reading.table.table
    order = order_of(order_by, record, decoded.source, change)
    rows = keys_of(change)
    whole = [True] * (len(rows) - 1) + [is_whole(change, len(table.columns))]
    return [
        (key_bytes(row, table.key), Candidate(record.partition, record.offset, order, order is None, is_complete))
        for row, is_complete in zip(rows, whole, strict=False)
    ]


def changes_of(reading: TopicReading, record: ConsumerRecord, decoded: Decoded) -> Sequence[Change]:
    """The changes of a record, including the delete that a Debezium tombstone implies.

    In its own partition the delete came before the tombstone. But compaction may remove that delete, and then the
    tombstone is the only record of it when partitions are compared.
    """
    if record.value is not None or decoded.changes or reading.has_own_key:
        return decoded.changes
    try:
        key = reading.key(record.key)
        return () if key is None else (Delete(reading.table.table.full_name, whole_key(reading, key)),)
    except Unreadable:
        return ()
