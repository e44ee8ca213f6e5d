"""Which transactions are open at the ends of the topics: what `cut` needs to know, read from the topics.

The topic of transactions is read through for those that have begun and not ended. Their records, and those of
transactions that ended a moment ago, can only lie in the last part of the data partitions: from the time of their BEGIN
on, less `SLACK_MS`, since partitions are written one after the other. Only that part is looked at here; all the rest is
the snapshot's. A transaction that ended longer ago than that has all its records in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.records.debezium import boundary, place_in_transaction
from adapters.kafka.records.decoding import Unreadable, Unwrapping
from adapters.kafka.records.reading import make_decoder
from adapters.kafka.settings import KafkaSettings, collection_topic
from adapters.kafka.topics.cut import Cut, Ended, Shares, TopicPartition, find_cut
from adapters.kafka.topics.ranges import OffsetRange, read_range

SLACK_MS = 30_000
"""How much later than its END a record of a transaction may become visible."""

CLOCKS_APART_MS = 600_000
"""How far the clocks of this machine and of the producers may be apart."""

Marker: TypeAlias = "tuple[str, int | None]"
"""The transaction of a BEGIN (None) or of an END (its number of records in followed topics)."""


@dataclass(slots=True)
class Overview:
    """What the topic of transactions says up to a place: when the transactions began that may be there in part."""

    begun: dict[str, int] = field(default_factory=dict)
    lately: deque[tuple[int, int]] = field(default_factory=deque)
    newest: int = 0

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
        """No record of a transaction that is there in part is older than this time.

        The BEGIN of the newest may not be visible yet; then its records are of the last few minutes.
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

    def share_out(self, wanted: OffsetRange, shares: Shares) -> None:
        """The records of a range to the transactions they belong to."""
        place = (wanted.topic, wanted.partition)
        for batch in read_range(self._consumer, wanted):
            for record in batch:
                transaction, order = self._transaction(record)
                if transaction is not None:
                    shares.add(place, record.offset, transaction, order)

    def _marker(self, record: ConsumerRecord) -> Marker | None:
        try:
            found = boundary(self._markers, record.value)
        except Unreadable:
            return None
        if found is None or not found.is_end:
            return found and (found.transaction, None)
        followed = (count for name, count in found.counts.items() if collection_topic(name) in self._collections)
        return found.transaction, sum(followed)

    def _transaction(self, record: ConsumerRecord) -> tuple[str | None, int]:
        """The transaction of a record, and its place in it; one that cannot be read belongs to none here, and is told
        of when folded.
        """
        try:
            payload = self._values[record.topic].value(record.value).payload if record.value is not None else None
            return place_in_transaction(payload) if isinstance(payload, dict) else (None, 0)
        except Unreadable:
            return None, 0


def transaction_cut(
    settings: KafkaSettings, consumer: KafkaConsumer, data: Sequence[TopicPartition], now_ms: int
) -> Cut:
    """The cut of these partitions and the topic of transactions as they are now."""
    topics = TransactionTopics(settings, consumer, sorted({topic for topic, _ in data}))
    place = KafkaPartition(settings.transaction_topic, 0)
    first, end = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
    partitions = [KafkaPartition(*partition) for partition in data]
    ends: dict[TopicPartition, int] = {
        (found.topic, found.partition): offset for found, offset in consumer.end_offsets(partitions).items()
    }
    overview = Overview()
    for record, marker in topics.markers(OffsetRange(place.topic, 0, first, end)):
        overview.add(record, marker)
    since = overview.since(now_ms)
    ended: list[Ended] = []
    complete: set[str] = set()
    # An END may be a little older than the records it counts.
    near = _offsets_since(consumer, {place: end}, since - SLACK_MS)[place]
    for record, (transaction, count) in topics.markers(OffsetRange(place.topic, 0, near, end)):
        if count is not None:
            ended.append(Ended(transaction, record.offset, count))
            if record.timestamp < overview.newest - SLACK_MS:
                complete.add(transaction)
    shares = Shares()
    starts = _offsets_since(consumer, {p: ends[p.topic, p.partition] for p in partitions}, since)
    for (topic, number), last in ends.items():
        topics.share_out(OffsetRange(topic, number, starts[KafkaPartition(topic, number)], last), shares)
    return find_cut(ends, end, ended, shares, complete)


def _offsets_since(
    consumer: KafkaConsumer, ends: Mapping[KafkaPartition, int], since: int
) -> dict[KafkaPartition, int]:
    """The first offset of each partition that is not older than a time; its end if there is none."""
    found = consumer.offsets_for_times(dict.fromkeys(ends, max(0, since)))
    return {place: at.offset if (at := found.get(place)) is not None else end for place, end in ends.items()}
