"""Finds keys that are in several partitions of a topic, and decides which partition has the newest record of each.

Such keys exist in a topic that got more partitions, or whose producers partition keys differently. There are two passes
over the records up to fixed ends. The first reads only keys and finds those that several partitions have; most topics
have none, and the second pass is not needed. The second reads the records of those keys and compares the last record in
each partition (`key_order`). If none is certainly the newest, an error is raised, or the row is left out.

Topics with one partition, and those with `order_by = offset`, are not examined.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.broker.client import make_consumer, translated_errors
from adapters.kafka.key_order import OFFSET, Candidate, key_bytes, keys_of, newest
from adapters.kafka.keys.candidates import candidates_in, changes_of
from adapters.kafka.keys.index import KeyIndex
from adapters.kafka.keys.unordered import key_unordered, warn_left_out
from adapters.kafka.records.decoding import Unreadable
from adapters.kafka.records.reading import TopicReading
from adapters.kafka.records.upsert import whole_key
from adapters.kafka.topics.folded_partition import FoldedPartition
from adapters.kafka.topics.key_set import KeyDigests, KeySet, among, shared
from adapters.kafka.topics.ranges import read_range
from adapters.kafka.topics.spreading import spread

AT_A_TIME = 50_000
"""Keys that are collected in memory before they are added to the index."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Partitions without outdated keys; `moved` as in `position.KafkaPosition`."""

    partitions: Sequence[FoldedPartition]
    moved: Mapping[str, str]


def settle(partitions: Sequence[FoldedPartition]) -> Settled:
    """Exclude every key from the partitions that do not have its newest record. Raises `key-unordered`."""
    outdated: dict[tuple[str, int], KeySet] = {}
    # These are not examined. Noted all the same: if the user sets another `order_by` later, a resync is required.
    moved = {
        part.records.topic: part.settings.ordering(part.records.topic)
        for part in partitions
        if not part.is_alone and part.settings.order_of(part.records.topic) == OFFSET
    }
    for topic, digests_of_topic in shared_keys(partitions).items():
        index = KeyIndex()
        try:
            for candidates in spread(partial(candidates_of, digests=digests_of_topic), _of_topic(partitions, topic)):
                index.add(candidates)
            lost = _losers(_of_topic(partitions, topic)[0], index)
        finally:
            index.close()
        if lost is not None:
            moved[topic] = partitions[0].settings.ordering(topic)
            outdated |= {(topic, number): KeySet.of(keys) for number, keys in lost.items()}
    settled = [
        replace(part, outdated=outdated.get((part.records.topic, part.records.partition), part.outdated))
        for part in partitions
    ]
    return Settled(settled, moved)


def shared_keys(partitions: Sequence[FoldedPartition]) -> dict[str, array[int]]:
    """By topic, the digests of keys that several of these partitions have; without topics that have none."""
    compared = [part for part in partitions if not part.is_alone and part.records.first < part.records.end]
    compared = [part for part in compared if part.settings.order_of(part.records.topic) != OFFSET]
    by_topic: dict[str, list[array[int]]] = {}
    for part, digests in zip(compared, spread(digests_of, compared), strict=True):
        by_topic.setdefault(part.records.topic, []).append(digests)
    return {topic: digests_of_topic for topic, listed in by_topic.items() if (digests_of_topic := shared(listed))}


def digests_of(part: FoldedPartition) -> array[int]:
    """The digests of a partition's keys. Decodes only the record keys where they identify the row."""
    reading, digests = part.reading(), KeyDigests()
    with closing(make_consumer(part.settings)) as consumer, translated_errors(part.settings):
        for batch in read_range(consumer, part.records):
            for record in batch:
                for key in _keys(reading, record):
                    digests.add(key)
    return digests.packed()


def _keys(reading: TopicReading, record: ConsumerRecord) -> Iterator[bytes]:
    """The keys that a record is about; none if it cannot be read."""
    names = reading.table.table.key
    try:
        if record.key is None or reading.has_own_key:
            changes = reading.read(record.key, record.value).changes
            yield from (key_bytes(row, names) for change in changes for row in keys_of(change))
        elif (key := reading.key(record.key)) is not None:
            yield key_bytes(whole_key(reading, key), names)
    except Unreadable:
        if (known := reading.row_key(record.key, record.value)) is not None:
            yield key_bytes(known, names)


def candidates_of(part: FoldedPartition, digests: array[int]) -> dict[bytes, Candidate]:
    """The last record of each key whose digest is one of these."""
    last: dict[bytes, Candidate] = {}
    is_wanted = among(digests)
    for key, candidate in all_candidates(part):
        if is_wanted(key):
            last[key] = candidate.after(last.get(key))
    return last


def all_candidates(part: FoldedPartition) -> Iterator[tuple[bytes, Candidate]]:
    """Every record of a partition that is part of the snapshot, by the keys that it is about."""
    reading, order_by = part.reading(), part.settings.order_of(part.records.topic)
    with closing(make_consumer(part.settings)) as consumer, translated_errors(part.settings):
        for record, decoded in part.decoded(consumer, reading):
            for change in changes_of(reading, record, decoded):
                yield from candidates_in(reading, order_by, record, decoded, change)


def _losers(part: FoldedPartition, index: KeyIndex) -> dict[int, list[bytes]] | None:
    """By partition, the keys whose newest record is in another one; None if no key is in several."""
    lost: dict[int, list[bytes]] = {}
    example: tuple[bytes, list[Candidate]] | None = None
    is_contested, unordered = False, 0
    for key, candidates in index.contested():
        is_contested = True
        best = newest(candidates)
        if best is None or not best.is_whole:
            best, unordered, example = None, unordered + 1, example or (key, candidates)
        for candidate in candidates:
            if candidate is not best:
                lost.setdefault(candidate.partition, []).append(key)
    if example is not None:
        topic = part.records.topic
        error = key_unordered(topic, part.table, part.settings.order_of(topic), *example, unordered - 1)
        if part.settings.unordered_keys == "refuse":
            raise error
        warn_left_out(error)
    return lost if is_contested else None


def index_of(partitions: Sequence[FoldedPartition]) -> KeyIndex:
    """The last record of every key in each of these partitions of one topic."""
    index = KeyIndex()
    try:
        for part in partitions:
            last: dict[bytes, Candidate] = {}
            for key, candidate in all_candidates(part):
                last[key] = candidate.after(last.get(key))
                if len(last) >= AT_A_TIME:
                    index.add(last)
                    last = {}
            index.add(last)
    except BaseException:
        index.close()
        raise
    return index


def _of_topic(partitions: Sequence[FoldedPartition], topic: str) -> list[FoldedPartition]:
    return [part for part in partitions if part.records.topic == topic]
