"""The state of the topics up to fixed ends: each partition is folded to the last row of each key.

Partitions are folded independently, by as many Spark tasks as there are. The row of a key that is in several partitions
comes from the one with its newest record (`keys.moved`). The tail starts exactly at the ends; with transaction metadata
they are chosen so that no transaction is divided (`topics.cut`). The snapshot can be read again in another process, as
long as the brokers keep the records.

A truncate empties the table, but its order relative to the records of other partitions is unknown. So a truncate in a
topic of several partitions is an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from kafka import KafkaConsumer, TopicPartition

from adapters.kafka.broker.client import TopicState, make_consumer, require_topics, topic_states, translated_errors
from adapters.kafka.keys.moved import settle
from adapters.kafka.position import KafkaPosition, Offsets
from adapters.kafka.records.catalog import Catalog
from adapters.kafka.records.schemas import Inferred
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.topics.cut import Cut, plain_cut
from adapters.kafka.topics.folded_partition import FoldedPartition
from adapters.kafka.topics.open_transactions import transaction_cut
from adapters.kafka.topics.ranges import OffsetRange
from adapters.kafka.topics.surveying import find_catalog
from changesource_sdk import Snapshot
from changesource_sdk.toolkit import event, logger

_log = logger("kafka")
Partition: TypeAlias = tuple[str, int]


def take_snapshot(settings: KafkaSettings) -> Snapshot:
    """The topics up to their current ends; logs the columns that it inferred."""
    states = topic_states(settings)
    require_topics(settings, states)
    with closing(make_consumer(settings)) as consumer, translated_errors(settings):
        cut = _cut(settings, consumer, _data_partitions(settings, states))
        ranges = _ranges(consumer, cut.ends)
        catalog, inferred = find_catalog(settings, consumer, ranges, thorough=True)
    for columns in inferred:
        event(
            _log, logging.INFO, "inferred the columns of a table; declare them if this is wrong", columns=str(columns)
        )
    partitions = [
        FoldedPartition(
            settings,
            catalog.by_topic[records.topic],
            records,
            cut.starts[records.topic, records.partition],
            cut.finished,
            states[records.topic].partitions == 1,
        )
        for records in ranges
    ]
    settled = settle(partitions)
    ids = {topic: state.id for topic, state in states.items()}
    position = replace(_tail_position(settings, cut, ids, catalog), moved=settled.moved).to_json()
    can_resume = partial(_is_there, settings, ids, ranges)
    return Snapshot(position, settled.partitions, tables=catalog.tables, can_resume=can_resume)


def current_catalog(settings: KafkaSettings) -> tuple[Catalog, list[Inferred]]:
    """The tables according to the newest records, and the inferred columns."""
    states = topic_states(settings)
    require_topics(settings, states)
    with closing(make_consumer(settings)) as consumer, translated_errors(settings):
        ranges = _ranges(consumer, _ends(consumer, _data_partitions(settings, states)))
        return find_catalog(settings, consumer, ranges, thorough=False)


def _data_partitions(settings: KafkaSettings, states: Mapping[str, TopicState]) -> list[Partition]:
    """All partitions except that of the transaction topic."""
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
    offsets = consumer.end_offsets([TopicPartition(*partition) for partition in data])
    return {(each.topic, each.partition): end for each, end in offsets.items()}


def _ranges(consumer: KafkaConsumer, ends: Mapping[Partition, int]) -> list[OffsetRange]:
    first = consumer.beginning_offsets([TopicPartition(*partition) for partition in ends])
    return [OffsetRange(*partition, first[TopicPartition(*partition)], end) for partition, end in ends.items()]


def _tail_position(settings: KafkaSettings, cut: Cut, topic_ids: Mapping[str, str], catalog: Catalog) -> KafkaPosition:
    """The position at which the tail starts."""
    starts = _by_topic(cut.starts)
    if not settings.transaction_topic:
        return KafkaPosition(starts, topic_ids, catalog)
    offsets = {**starts, settings.transaction_topic: (cut.transactions_end,)}
    if cut.starts == cut.ends:
        return KafkaPosition(offsets, topic_ids, catalog)
    return KafkaPosition(offsets, topic_ids, catalog, _by_topic(cut.ends), starts, cut.ended_from)


def _by_topic(partitions: Mapping[Partition, int]) -> Offsets:
    offsets: dict[str, tuple[int, ...]] = {}
    for (topic, _), offset in sorted(partitions.items()):
        offsets[topic] = (*offsets.get(topic, ()), offset)
    return offsets


def _is_there(settings: KafkaSettings, topic_ids: Mapping[str, str], ranges: Sequence[OffsetRange]) -> bool:
    """Whether the records of a snapshot can still be read."""
    states = topic_states(settings)
    if any(topic not in states or states[topic].id != known for topic, known in topic_ids.items()):
        return False
    with closing(make_consumer(settings)) as consumer, translated_errors(settings):
        now = _ranges(consumer, {(known.topic, known.partition): known.end for known in ranges})
    return all(current.first <= known.first for current, known in zip(now, ranges, strict=True))
