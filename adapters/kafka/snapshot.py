"""The state of the topics at fixed ends: each partition of a topic folded to the last row of each key.

Partitions are folded apart, by as many Spark tasks as there are; a key that lies in several is left to the one with its
newest record (`keys.moved`). What lies behind the ends is the tail's, which starts exactly there; with transaction
metadata the ends are such that no transaction is torn (`cut`). The snapshot outlives the process that took it, as long
as the brokers keep the records.

A truncate empties the table; where that stands among the records of other partitions nobody can tell, so that a topic
of several partitions is refused if its records tell of one.
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

from adapters.kafka.broker.client import TopicState, make_consumer, naming_the_cause, require_topics, topic_states
from adapters.kafka.keys.moved import settle
from adapters.kafka.position import Offsets, Vector
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
    settled = settle(partitions)
    ids = {topic: state.id for topic, state in states.items()}
    position = replace(_vector(settings, cut, ids, catalog), moved=settled.moved).position()
    can_resume = partial(_is_there, settings, ids, ranges)
    return Snapshot(position, settled.partitions, tables=catalog.tables, can_resume=can_resume)


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
