"""The keys of what lies before a position: read again from the topics, since nothing else has kept them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from kafka import TopicPartition

from adapters.kafka.broker.client import make_consumer, naming_the_cause
from adapters.kafka.keys.index import KeyIndex
from adapters.kafka.keys.moved import digests_of, index_of, shared_keys
from adapters.kafka.position import Vector
from adapters.kafka.records.catalog import Catalog
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.topics.folded_partition import FoldedPartition
from adapters.kafka.topics.key_set import shared
from adapters.kafka.topics.ranges import OffsetRange
from changesource_sdk import ResyncRequired

SAMPLED = 500
"""Offsets at either end of a partition that `doctor` looks at."""


def index_before(settings: KafkaSettings, topic: str, catalog: Catalog, offsets: Sequence[int]) -> KeyIndex:
    """The last record of each key in each partition of a topic, before these offsets."""
    return index_of(_partitions_before(settings, catalog, {topic: offsets}))


def require_one_partition_per_key(settings: KafkaSettings, vector: Vector) -> None:
    """Raise `ResyncRequired` if a key lies in several partitions before a position.

    For positions of versions that did not look: the snapshot before them may have such keys twice.
    """
    offsets = {topic: vector.offsets[topic] for topic in vector.catalog.by_topic}
    found = shared_keys(_partitions_before(settings, vector.catalog, offsets))
    if found:
        raise ResyncRequired(
            "keys-moved",
            f"keys lie in several partitions of {', '.join(sorted(found))}, which an earlier version did not look for",
            fix="nothing to do: the topics are read anew and consumers are reset",
        )


def sampled_shared_keys(settings: KafkaSettings, catalog: Catalog, topics: Sequence[str]) -> list[str]:
    """Those of the topics that have a key in several partitions, by the first and last records of each."""
    with closing(make_consumer(settings)) as consumer, naming_the_cause(settings):
        places = [TopicPartition(topic, n) for topic in topics for n in consumer.partitions_for_topic(topic) or ()]
        ends = consumer.end_offsets(places)
    offsets = {topic: [ends[found] for found in places if found.topic == topic] for topic in topics}
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
    with closing(make_consumer(settings)) as consumer, naming_the_cause(settings):
        first = consumer.beginning_offsets(list(ends))
    return [
        FoldedPartition(
            settings,
            catalog.by_topic[found.topic],
            OffsetRange(found.topic, found.partition, first[found], end),
            tail_start=end,
            is_alone=len(offsets[found.topic]) == 1,
        )
        for found, end in ends.items()
    ]
