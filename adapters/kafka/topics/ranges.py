"""A fixed range of one partition of a topic, read from its first record to its last.

The snapshot and the surveys read ranges; the tail has its own consumer. Offsets have gaps (compaction, transaction
markers), so the end is detected by the consumer's position and not by counting records. Records of open or aborted
Kafka transactions are never seen: consumers read committed records only, and ends are those of committed records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import OffsetOutOfRangeError

from changesource_sdk import AdapterError

POLL_MS = 1_000
PATIENCE_S = 60.0
BATCH_RECORDS = 5_000


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of a partition from offset `first` up to, not including, `end`."""

    topic: str
    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.first}–{self.end}"


def read_range(consumer: KafkaConsumer, wanted: OffsetRange) -> Iterator[list[ConsumerRecord]]:
    """The records in batches, in offset order. Raises `AdapterError` if they were deleted or the broker is silent.

    The consumer is assigned to the range's partition and to nothing else; it can read one range after the other.
    """
    if wanted.first >= wanted.end:
        return
    partition = TopicPartition(wanted.topic, wanted.partition)
    consumer.assign([partition])
    consumer.seek(partition, wanted.first)
    yield from _batches(consumer, partition, wanted)


def _batches(consumer: KafkaConsumer, partition: TopicPartition, wanted: OffsetRange) -> Iterator[list[ConsumerRecord]]:
    reached, heard = wanted.first, time.monotonic()
    while reached < wanted.end:
        try:
            records = consumer.poll(timeout_ms=POLL_MS, max_records=BATCH_RECORDS).get(partition, [])
            position = consumer.position(partition)
        except OffsetOutOfRangeError as error:
            raise _gone(wanted) from error
        if position == reached and time.monotonic() - heard > PATIENCE_S:
            raise AdapterError(
                "broker-silent",
                f"no record came for {PATIENCE_S:g} s, at offset {reached}",
                where=str(wanted),
                fix="nothing to do if the broker is being restarted: it is tried again; else see the broker's log",
            )
        if position > reached:
            reached, heard = position, time.monotonic()
        if records:
            yield records if records[-1].offset < wanted.end else [r for r in records if r.offset < wanted.end]


def _gone(wanted: OffsetRange) -> AdapterError:
    return AdapterError(
        "offsets-gone",
        "records were deleted while they were read",
        where=str(wanted),
        fix="nothing to do: a new snapshot is taken; if it keeps happening, keep records longer (retention.ms)",
    )
