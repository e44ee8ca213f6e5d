"""The state of the topics at fixed ends: each partition of a topic folded to the last row of each key.

A key lives in one partition, so partitions are folded apart, by as many Spark tasks as there are. What lies behind the
ends is the tail's, which starts exactly there; with transaction metadata the ends are such that no transaction is torn
(`cut`). The snapshot outlives the process that took it, as long as the brokers keep the records.

A truncate empties the table; where that stands among the records of other partitions nobody can tell, so that a topic
of several partitions is refused if its records tell of one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.catalog import Catalog, TopicTable
from adapters.kafka.client import TopicState, make_consumer, naming_the_cause, require_topics, topic_states
from adapters.kafka.cut import Cut, plain_cut
from adapters.kafka.dead_letters import DeadLetters, poison_record
from adapters.kafka.fold import Fold
from adapters.kafka.open_transactions import transaction_cut
from adapters.kafka.position import Offsets, Vector
from adapters.kafka.ranges import OffsetRange, read_range
from adapters.kafka.reading import TopicReading, make_decoder
from adapters.kafka.records import Decoded, Unreadable
from adapters.kafka.schemas import Inferred
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.spool import Where
from adapters.kafka.surveying import find_catalog
from adapters.kafka.tail import Judge
from changesource_sdk.adapter import Change, Delete, Insert, Row, Snapshot, Truncate, Update
from changesource_sdk.errors import AdapterError, ChangesourceError, InvalidChange
from changesource_sdk.observe.logs import event, logger
from changesource_sdk.pipeline.kept_json import kept_json

_log = logger("kafka")
Partition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class FoldedPartition:
    """The rows that the records of one partition leave.

    Behind `tail_start` only those of `finished` transactions count. `is_alone`: its topic has no other partitions.
    """

    settings: KafkaSettings
    source: TopicTable
    records: OffsetRange
    tail_start: int
    finished: frozenset[str] = frozenset()
    is_alone: bool = True

    @property
    def table(self) -> str:
        """The table's full name."""
        return self.source.table.full_name

    def rows(self) -> Generator[Row]:
        """The rows, in any order, with all columns of the table."""
        if self.records.first >= self.records.end:
            return
        blank = dict.fromkeys(self.source.table.column_names)
        with Fold() as fold:
            with closing(make_consumer(self.settings)) as consumer, naming_the_cause(self.settings):
                self._fill(fold, consumer)
            for row in fold.rows():
                yield {**blank, **row}

    def explain(self, error: InvalidChange, is_refused: Callable[[Row], bool]) -> ChangesourceError:
        """The error for a row that no consumer could hold, naming the record that brought it."""
        with closing(self.rows()) as rows:
            row = next(filter(is_refused, rows), None)
        return error if row is None else poison_record(self._record_of(row), f"{error.message} ({error.where})")

    def _record_of(self, row: Row) -> Where:
        """The last record of a row."""
        names = self.source.table.key
        wanted, offset = _key(row, names), self.records.first
        with closing(make_consumer(self.settings)) as consumer, naming_the_cause(self.settings):
            for record, decoded in self._decoded(consumer):
                written = (change.row for change in decoded.changes if isinstance(change, Insert | Update))
                offset = record.offset if any(_key(found, names) == wanted for found in written) else offset
        return self.records.topic, self.records.partition, offset

    def _fill(self, fold: Fold, consumer: KafkaConsumer) -> None:
        for record, decoded in self._decoded(consumer):
            for change in decoded.changes:
                if isinstance(change, Truncate) and not self.is_alone:
                    raise _torn_truncate(record)
                _put(fold, change, self.source.table.key, len(self.source.table.columns))

    def _decoded(self, consumer: KafkaConsumer) -> Iterator[tuple[ConsumerRecord, Decoded]]:
        """The records that count, with what they say."""
        reading = TopicReading(self.source, self.settings, make_decoder(self.settings.decoder), grows=False)
        letters = DeadLetters(self.settings)
        judge = Judge() if self.settings.poison == "set-aside" else None
        for batch in read_range(consumer, self.records):
            for record in batch:
                try:
                    decoded = reading.read(record.key, record.value)
                    if judge is not None:
                        judge.check(self.source.table, decoded.changes)
                except Unreadable as error:
                    if self._counts(record, error.transaction):
                        letters.put(record, error.reason)
                    continue
                except InvalidChange as error:
                    if self._counts(record, decoded.transaction):
                        letters.put(record, f"{error.message} ({error.where})")
                    continue
                if self._counts(record, decoded.transaction):
                    yield record, decoded

    def _counts(self, record: ConsumerRecord, transaction: str | None) -> bool:
        return record.offset < self.tail_start or transaction in self.finished


def _put(fold: Fold, change: Change, key: Sequence[str], columns: int) -> None:
    match change:
        case Insert(_, row):
            fold.put(_key(row, key), row)
        case Update(_, row, old_key):
            if old_key is not None:
                fold.remove(_key(old_key, key))
            known = fold.put if len(row) == columns else fold.merge
            known(_key(row, key), row)
        case Delete(_, gone):
            fold.remove(_key(gone, key))
        case Truncate():
            fold.clear()


def _key(row: Row, names: Sequence[str]) -> bytes:
    return kept_json([row[name] for name in names])


def _torn_truncate(record: ConsumerRecord) -> AdapterError:
    return AdapterError(
        "truncate-unordered",
        "a truncate stands among records of other partitions whose order to it nobody can tell",
        where=f"{record.topic}[{record.partition}] offset {record.offset}",
        fix="give the topic one partition, or let Debezium leave truncates out (skipped.operations=t)",
    )


def take_snapshot(settings: KafkaSettings) -> Snapshot:
    """The topics as they are now; says what it inferred about their tables."""
    states = topic_states(settings)
    require_topics(settings, states)
    with closing(make_consumer(settings)) as consumer, naming_the_cause(settings):
        cut = _cut(settings, consumer, _data_partitions(settings, states))
        ranges = _ranges(consumer, cut.ends)
        catalog, inferred = find_catalog(settings, consumer, ranges, thorough=True)
    for found in inferred:
        event(_log, logging.INFO, "inferred the columns of a table; declare them if this is wrong", columns=str(found))
    partitions = [
        FoldedPartition(
            settings,
            catalog.by_topic[found.topic],
            found,
            cut.starts[found.topic, found.partition],
            cut.finished,
            states[found.topic].partitions == 1,
        )
        for found in ranges
    ]
    ids = {topic: state.id for topic, state in states.items()}
    position = _vector(settings, cut, ids, catalog).position()
    can_resume = partial(_is_there, settings, ids, ranges)
    return Snapshot(position, partitions, tables=catalog.tables, can_resume=can_resume)


def current_catalog(settings: KafkaSettings) -> tuple[Catalog, list[Inferred]]:
    """The tables by the newest records, and what was inferred about them."""
    states = topic_states(settings)
    require_topics(settings, states)
    with closing(make_consumer(settings)) as consumer, naming_the_cause(settings):
        ranges = _ranges(consumer, _ends(consumer, _data_partitions(settings, states)))
        return find_catalog(settings, consumer, ranges, thorough=False)


def _data_partitions(settings: KafkaSettings, states: Mapping[str, TopicState]) -> list[Partition]:
    """The partitions that hold rows."""
    return [
        (topic, number)
        for topic, state in sorted(states.items())
        if topic != settings.transaction_topic
        for number in range(state.partitions)
    ]


def _cut(settings: KafkaSettings, consumer: KafkaConsumer, data: Sequence[Partition]) -> Cut:
    if not settings.transaction_topic:
        return plain_cut(_ends(consumer, data))
    return transaction_cut(settings, consumer, data, int(time.time() * 1000))


def _ends(consumer: KafkaConsumer, data: Sequence[Partition]) -> dict[Partition, int]:
    found = consumer.end_offsets([TopicPartition(*partition) for partition in data])
    return {(place.topic, place.partition): end for place, end in found.items()}


def _ranges(consumer: KafkaConsumer, ends: Mapping[Partition, int]) -> list[OffsetRange]:
    first = consumer.beginning_offsets([TopicPartition(*partition) for partition in ends])
    return [OffsetRange(*partition, first[TopicPartition(*partition)], end) for partition, end in ends.items()]


def _vector(settings: KafkaSettings, cut: Cut, topic_ids: Mapping[str, str], catalog: Catalog) -> Vector:
    """Where the tail starts."""
    starts = _by_topic(cut.starts)
    if not settings.transaction_topic:
        return Vector(starts, topic_ids, catalog)
    offsets = {**starts, settings.transaction_topic: (cut.transactions_end,)}
    if cut.starts == cut.ends:
        return Vector(offsets, topic_ids, catalog)
    return Vector(offsets, topic_ids, catalog, _by_topic(cut.ends), starts, cut.ended_from)


def _by_topic(found: Mapping[Partition, int]) -> Offsets:
    offsets: dict[str, tuple[int, ...]] = {}
    for (topic, _), offset in sorted(found.items()):
        offsets[topic] = (*offsets.get(topic, ()), offset)
    return offsets


def _is_there(settings: KafkaSettings, topic_ids: Mapping[str, str], ranges: Sequence[OffsetRange]) -> bool:
    """Whether the records of a snapshot can still be read."""
    states = topic_states(settings)
    if any(topic not in states or states[topic].id != known for topic, known in topic_ids.items()):
        return False
    with closing(make_consumer(settings)) as consumer, naming_the_cause(settings):
        now = _ranges(consumer, {(found.topic, found.partition): found.end for found in ranges})
    return all(found.first <= known.first for found, known in zip(now, ranges, strict=True))
