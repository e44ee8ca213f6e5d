"""Reads which transactions are open at the ends of the topics, for `cut`.

The whole transaction topic is read for transactions that have begun and not ended. Their records, and those of
transactions that have just ended, can only be in the last part of the data partitions: from the time of their BEGIN on,
less `SLACK_MS`, since partitions are written one after the other. Only that part is read here. A transaction that ended
before that has all its records in the topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.records.debezium import boundary, transaction_of
from adapters.kafka.records.decoding import Unreadable, Unwrapping
from adapters.kafka.records.reading import make_decoder
from adapters.kafka.settings import KafkaSettings, collection_topic
from adapters.kafka.topics.cut import Cut, Ended, RecordGroups, TopicPartition, find_cut
from adapters.kafka.topics.ranges import OffsetRange, read_range

SLACK_MS = 30_000
"""How much later than its END a record of a transaction may become visible."""

CLOCKS_APART_MS = 600_000
"""How much the clocks of this machine and of the producers may differ."""

Marker: TypeAlias = "tuple[str, int | None]"
"""The transaction of a BEGIN (None) or of an END (its number of records in followed topics)."""


@dataclass(slots=True)
class Overview:
    """When the transactions began that may be incomplete, from the records of the transaction topic so far."""

    # All times are timestamps of records, in milliseconds; `add` writes all three.
    begun: dict[str, int] = field(default_factory=dict)  # the time of BEGIN of each open transaction
    lately: deque[tuple[int, int]] = field(default_factory=deque)  # (END, BEGIN) of those that ended within SLACK_MS
    newest: int = 0  # of all records so far

    def add(self, record: ConsumerRecord, marker: Marker) -> None:
        """The next record of the topic."""
        transaction, count = marker
        self.newest = max(self.newest, record.timestamp)
        if count is None:
            self.begun[transaction] = record.timestamp
            return
        self.lately.append((record.timestamp, self.begun.pop(transaction, record.timestamp)))
        while self.lately[0][0] < self.newest - SLACK_MS:
            self.lately.popleft()

    def since(self, now_ms: int) -> int:
        """No record of an incomplete transaction is older than this time.

        The BEGIN of the newest transaction may not be visible yet; then its records are of the last few minutes.
        """
        newest = max(self.newest, now_ms - CLOCKS_APART_MS)
        return min([newest, *self.begun.values(), *(begun for _, begun in self.lately)]) - SLACK_MS


class TransactionTopics:
    """Decodes what is needed of records near the ends."""

    def __init__(self, settings: KafkaSettings, consumer: KafkaConsumer, topics: Sequence[str]) -> None:
        decoder = make_decoder(settings.decoder)
        self._collections = settings.collections(topics)
        self._markers = Unwrapping(settings.transaction_topic, decoder)
        self._values = {topic: Unwrapping(topic, decoder) for topic in topics}
        self._consumer = consumer

    def markers(self, wanted: OffsetRange) -> Iterator[tuple[ConsumerRecord, Marker]]:
        """The BEGINs and ENDs of a range of the transaction topic."""
        for batch in read_range(self._consumer, wanted):
            for record in batch:
                if (marker := self._marker(record)) is not None:
                    yield record, marker

    def group_records(self, wanted: OffsetRange, groups: RecordGroups) -> None:
        """Add the records of a range to the groups of their transactions."""
        partition = (wanted.topic, wanted.partition)
        for batch in read_range(self._consumer, wanted):
            for record in batch:
                transaction, order = self._transaction(record)
                if transaction is not None:
                    groups.add(partition, record.offset, transaction, order)

    def _marker(self, record: ConsumerRecord) -> Marker | None:
        try:
            marker = boundary(self._markers, record.value)
        except Unreadable:
            return None
        if marker is None or not marker.is_end:
            return marker and (marker.transaction, None)
        followed = (count for name, count in marker.counts.items() if collection_topic(name) in self._collections)
        return marker.transaction, sum(followed)

    def _transaction(self, record: ConsumerRecord) -> tuple[str | None, int]:
        """The transaction of a record, and its number in it; none if it cannot be read, which the fold reports."""
        try:
            payload = self._values[record.topic].value(record.value).payload if record.value is not None else None
            return transaction_of(payload) if isinstance(payload, dict) else (None, 0)
        except Unreadable:
            return None, 0


def transaction_cut(
    settings: KafkaSettings, consumer: KafkaConsumer, data: Sequence[TopicPartition], now_ms: int
) -> Cut:
    """The cut at the current ends of these partitions and of the transaction topic."""
    topics = TransactionTopics(settings, consumer, sorted({topic for topic, _ in data}))
    boundaries = KafkaPartition(settings.transaction_topic, 0)
    first, end = consumer.beginning_offsets([boundaries])[boundaries], consumer.end_offsets([boundaries])[boundaries]
    partitions = [KafkaPartition(*partition) for partition in data]
    ends: dict[TopicPartition, int] = {
        (each.topic, each.partition): offset for each, offset in consumer.end_offsets(partitions).items()
    }
    overview = Overview()
    for record, marker in topics.markers(OffsetRange(boundaries.topic, 0, first, end)):
        overview.add(record, marker)
    since = overview.since(now_ms)
    ended: list[Ended] = []
    complete: set[str] = set()
    # An END may be a little older than the records it counts.
    near = _offsets_since(consumer, {boundaries: end}, since - SLACK_MS)[boundaries]
    for record, (transaction, count) in topics.markers(OffsetRange(boundaries.topic, 0, near, end)):
        if count is not None:
            ended.append(Ended(transaction, record.offset, count))
            if record.timestamp < overview.newest - SLACK_MS:
                complete.add(transaction)
    groups = RecordGroups()
    starts = _offsets_since(consumer, {p: ends[p.topic, p.partition] for p in partitions}, since)
    for (topic, number), last in ends.items():
        topics.group_records(OffsetRange(topic, number, starts[KafkaPartition(topic, number)], last), groups)
    return find_cut(ends, end, ended, groups, complete)


def _offsets_since(
    consumer: KafkaConsumer, ends: Mapping[KafkaPartition, int], since: int
) -> dict[KafkaPartition, int]:
    """The first offset of each partition that is not older than a time; its end if there is none."""
    offsets = consumer.offsets_for_times(dict.fromkeys(ends, max(0, since)))
    return {
        partition: at.offset if (at := offsets.get(partition)) is not None else end for partition, end in ends.items()
    }
