"""Which transactions are open at the ends of the topics: what `cut` needs to know, read from the topics.

The topic of transactions is read through for those that have begun and not ended. Their records, and those of
transactions that ended a moment ago, can only lie in the last part of the data partitions: from the time of their BEGIN
on, less `SLACK_MS`, since partitions are written one after the other. Only that part is looked at here; all the rest is
the snapshot's. A transaction that ended longer ago than that has all its records in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.cut import Cut, Ended, Shares, TopicPartition, find_cut
from adapters.kafka.ranges import OffsetRange, read_range

SLACK_MS = 30_000
"""How much later than its END a record of a transaction may become visible."""

CLOCKS_APART_MS = 600_000
"""How far the clocks of this machine and of the producers may be apart."""

Options: TypeAlias = Mapping[str, object]
TransactionOf: TypeAlias = Callable[[ConsumerRecord], "str | None"]
"""The transaction that a record belongs to, if any."""

MarkerOf: TypeAlias = Callable[[ConsumerRecord], "tuple[str, int | None] | None"]
"""The transaction of a BEGIN (None) or END (its number of records); None for what is neither."""


@dataclass(slots=True)
class Overview:
    """What the topic of transactions says up to a place: when the transactions began that may be there in part."""

    begun: dict[str, int] = field(default_factory=dict)
    lately: deque[tuple[int, int]] = field(default_factory=deque)
    newest: int = 0

    def add(self, record: ConsumerRecord, marker: tuple[str, int | None]) -> None:
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


def transaction_cut(
    consumer: KafkaConsumer,
    options: Options,
    data: Sequence[TopicPartition],
    topic: str,
    transaction_of: TransactionOf,
    marker_of: MarkerOf,
    now_ms: int,
) -> Cut:
    """The cut of these partitions and the topic of transactions as they are now."""
    place = KafkaPartition(topic, 0)
    whole = OffsetRange(topic, 0, consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place])
    partitions = [KafkaPartition(*partition) for partition in data]
    ends: dict[TopicPartition, int] = {
        (p.topic, p.partition): end for p, end in consumer.end_offsets(partitions).items()
    }
    overview = Overview()
    for batch in read_range(options, whole):
        for record in batch:
            if (marker := marker_of(record)) is not None:
                overview.add(record, marker)
    since = overview.since(now_ms)
    first = _offsets_since(consumer, partitions, since)
    # An END may be a little older than the records it counts.
    markers = _offsets_since(consumer, [place], since - SLACK_MS)
    near = OffsetRange(topic, 0, markers.get(place, whole.end), whole.end)
    ended, complete = _ended(options, near, marker_of, overview.newest - SLACK_MS)
    shares = Shares()
    for partition in partitions:
        own: TopicPartition = (partition.topic, partition.partition)
        _look(options, OffsetRange(*own, first.get(partition, ends[own]), ends[own]), transaction_of, shares)
    return find_cut(ends, whole.end, ended, shares, complete)


def _offsets_since(
    consumer: KafkaConsumer, partitions: Sequence[KafkaPartition], since: int
) -> dict[KafkaPartition, int]:
    found = consumer.offsets_for_times(dict.fromkeys(partitions, max(0, since)))
    return {partition: at.offset for partition, at in found.items() if at is not None}


def _ended(options: Options, near: OffsetRange, marker_of: MarkerOf, lately: int) -> tuple[list[Ended], set[str]]:
    """The ENDs of a range, and the transactions of those that are older than `lately`."""
    ended: list[Ended] = []
    complete: set[str] = set()
    for batch in read_range(options, near):
        for record in batch:
            marker = marker_of(record)
            if marker is None or marker[1] is None:
                continue
            ended.append(Ended(marker[0], record.offset, marker[1]))
            if record.timestamp < lately:
                complete.add(marker[0])
    return ended, complete


def _look(options: Options, near: OffsetRange, transaction_of: TransactionOf, shares: Shares) -> None:
    place = (near.topic, near.partition)
    for batch in read_range(options, near):
        for record in batch:
            transaction = transaction_of(record)
            if transaction is not None:
                shares.add(place, record.offset, transaction)
