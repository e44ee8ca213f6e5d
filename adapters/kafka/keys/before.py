"""The keys of the records before a position, read again from the topics: nothing else stores them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from kafka import TopicPartition

from adapters.kafka.broker.client import make_consumer, translated_errors
from adapters.kafka.keys.index import KeyIndex
from adapters.kafka.keys.moved import digests_of, index_of, shared_keys
from adapters.kafka.position import KafkaPosition
from adapters.kafka.records.catalog import Catalog
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.topics.folded_partition import FoldedPartition
from adapters.kafka.topics.key_set import shared
from adapters.kafka.topics.ranges import OffsetRange
from changesource_sdk import ResyncRequired

SAMPLED = 500
"""Offsets at each end of a partition that `doctor` reads."""


def index_before(settings: KafkaSettings, topic: str, catalog: Catalog, offsets: Sequence[int]) -> KeyIndex:
    """The last record of each key in each partition of a topic, before these offsets."""
    return index_of(_partitions_before(settings, catalog, {topic: offsets}))


def require_one_partition_per_key(settings: KafkaSettings, position: KafkaPosition) -> None:
    """Raise `ResyncRequired` if a key is in several partitions before a position.

    For positions of early versions, whose snapshots may have the rows of such keys twice.
    """
    offsets = {topic: position.offsets[topic] for topic in position.catalog.by_topic}
    topics = shared_keys(_partitions_before(settings, position.catalog, offsets))
    if topics:
        raise ResyncRequired(
            "keys-moved",
            f"keys lie in several partitions of {', '.join(sorted(topics))}, which an earlier version did not look for",
            fix="nothing to do: the topics are read again from the start and consumers are reset",
        )


def sampled_shared_keys(settings: KafkaSettings, catalog: Catalog, topics: Sequence[str]) -> list[str]:
    """The topics with a key in several partitions, according to the first and last records of each partition."""
    with closing(make_consumer(settings)) as consumer, translated_errors(settings):
        partitions = [TopicPartition(topic, n) for topic in topics for n in consumer.partitions_for_topic(topic) or ()]
        ends = consumer.end_offsets(partitions)
    offsets = {topic: [ends[each] for each in partitions if each.topic == topic] for topic in topics}
    digests: dict[str, list[array[int]]] = {topic: [] for topic in topics}
    for part in _partitions_before(settings, catalog, offsets):
        digests[part.records.topic].append(array("Q", sorted({*digests_of(_head(part)), *digests_of(_last(part))})))
    return [topic for topic, listed in digests.items() if shared(listed)]


def _head(part: FoldedPartition) -> FoldedPartition:
    records = part.records
    return replace(part, records=replace(records, end=min(records.end, records.first + SAMPLED)))


def _last(part: FoldedPartition) -> FoldedPartition:
    records = part.records
    return replace(part, records=replace(records, first=max(records.first, records.end - SAMPLED)))


def _partitions_before(
    settings: KafkaSettings, catalog: Catalog, offsets: Mapping[str, Sequence[int]]
) -> list[FoldedPartition]:
    ends = {TopicPartition(topic, number): at for topic, ats in offsets.items() for number, at in enumerate(ats)}
    with closing(make_consumer(settings)) as consumer, translated_errors(settings):
        first = consumer.beginning_offsets(list(ends))
    return [
        FoldedPartition(
            settings,
            catalog.by_topic[each.topic],
            OffsetRange(each.topic, each.partition, first[each], end),
            tail_start=end,
            is_alone=len(offsets[each.topic]) == 1,
        )
        for each, end in ends.items()
    ]
