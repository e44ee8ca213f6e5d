"""The tail over topics whose keys move: whatever the interleaving and the restarts, it leaves what the order says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.keys.candidates import candidates_in, changes_of
from adapters.kafka.keys.index import KeyIndex
from adapters.kafka.keys.tracking import REMEMBERED_KEYS, RecentKeys
from adapters.kafka.position import KafkaPosition
from adapters.kafka.records.catalog import Catalog
from adapters.kafka.records.reading import TopicReading, make_decoder
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.tail import KafkaTail
from changesource_sdk.adapter import BadRow, Delete, Insert, Transaction, Update
from changesource_sdk.errors import AdapterError, ResyncRequired
from tests.adapters.kafka.made_records import ITEM, a_batch, a_record, settings_of
from tests.support.workloads.debezium import Collection, field

ONE = Catalog([ITEM])
PARTITIONS = 3
MOVED = {"items": "timestamp/set-aside"}
BY_TIME = settings_of(topics="items", order_by="timestamp", unordered_keys="set-aside")
Topic = list[list[ConsumerRecord]]
"""The records of each partition."""


def model(topic: Topic) -> dict[object, object]:
    """Titles by id: of each key, the last record of every partition, and of those the one with the latest time."""
    last: dict[bytes, list[ConsumerRecord]] = {}
    for records in topic:
        for key, record in {record.key: record for record in records}.items():
            last.setdefault(key, []).append(record)
    rows: dict[object, object] = {}
    for key, found in last.items():
        latest = max(record.timestamp for record in found)
        winners = [record for record in found if record.timestamp == latest]
        if len(found) == 1 or len(winners) == 1:
            value = (found[0] if len(found) == 1 else winners[0]).value
            if value is not None:
                rows[int(key)] = value.decode()
    return rows


def before(topic: Topic, offsets: Sequence[int]) -> Topic:
    return [records[:offset] for records, offset in zip(topic, offsets, strict=True)]


def index_of(given: KafkaSettings, topic: Topic, offsets: Sequence[int]) -> KeyIndex:
    """What `keys.before.index_before` reads from a broker."""
    index = KeyIndex()
    reading = TopicReading(ITEM, given, make_decoder(""), grows=False)
    for record in (record for records in before(topic, offsets) for record in records):
        decoded = reading.read(record.key, record.value)
        for change in changes_of(reading, record, decoded):
            index.add(dict(candidates_in(reading, given.order_of("items"), record, decoded, change)))
    return index


def apply(rows: dict[object, object], transaction: Transaction) -> None:
    for change in transaction.changes:
        match change:
            case Insert(_, row):
                rows[row["id"]] = orjson.dumps(row).decode()
            case Delete(_, key):
                rows.pop(key["id"], None)
            case _:
                raise AssertionError(f"not in this format: {change}")


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    """Records of few keys over partitions, with times that mostly grow, tie now and then, and tombstones."""
    topic: Topic = [[] for _ in range(PARTITIONS)]
    time_ms = 0
    for number in range(draw(st.integers(1, 14))):
        time_ms += draw(st.sampled_from([-1, 0, 1, 1, 1, 1]))
        partition, key = draw(st.integers(0, PARTITIONS - 1)), draw(st.integers(0, 2))
        value = None if draw(st.integers(0, 3)) == 0 else {"id": key, "title": f"v{number}"}
        offset = len(topic[partition])
        topic[partition].append(a_record("items", offset, key, value, partition, max(0, time_ms)))
    return topic


def steps(data: st.DataObject, topic: Topic, start: Sequence[int]) -> Iterator[tuple[list[ConsumerRecord], bool]]:
    """What polls bring from given offsets on, partitions in any interleaving, and whether the tail then restarts."""
    at = list(start)
    while any(at[number] < len(records) for number, records in enumerate(topic)):
        number = data.draw(st.sampled_from([n for n in range(PARTITIONS) if at[n] < len(topic[n])]))
        count = data.draw(st.integers(1, len(topic[number]) - at[number]))
        yield topic[number][at[number] : at[number] + count], data.draw(st.booleans())
        at[number] += count


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_snapshot_and_tail_leave_what_the_order_says(data: st.DataObject) -> None:
    topic = data.draw(topics())
    start = [data.draw(st.integers(0, len(records))) for records in topic]
    rows = model(before(topic, start))

    def make_index(_: str, __: Catalog, offsets: Sequence[int]) -> KeyIndex:
        return index_of(BY_TIME, topic, offsets)

    at = list(start)
    tail = KafkaTail(
        BY_TIME, KafkaPosition({"items": tuple(at)}, {"items": "i"}, ONE, moved=MOVED), make_index=make_index
    )
    for records, restarts in steps(data, topic, start):
        at[records[0].partition] = records[-1].offset + 1
        try:
            for transaction in tail.take(a_batch(*records), 0.0):
                apply(rows, transaction)
        except ResyncRequired:
            rows, restarts = model(before(topic, at)), True
        if restarts:
            tail.close()
            vector = KafkaPosition({"items": tuple(at)}, {"items": "i"}, ONE, moved=MOVED)
            tail = KafkaTail(BY_TIME, vector, make_index=make_index)
        assert rows == model(before(topic, at))
    tail.close()


def tail_of(given: KafkaSettings, moved: dict[str, str] | None = None, partitions: int = 2) -> KafkaTail:
    found = {"items": given.ordering("items")} if moved is None else moved
    return KafkaTail(given, KafkaPosition({"items": (0,) * partitions}, {"items": "i"}, ONE, moved=found))


def take(tail: KafkaTail, *records: ConsumerRecord) -> list[object]:
    return [change for found in tail.take(a_batch(*records), 0.0) for change in found.changes]


def test_an_older_record_that_comes_late_from_another_partition_is_dropped() -> None:
    tail = tail_of(BY_TIME)
    assert take(tail, a_record("items", 0, 1, None, 1, timestamp=9)) == [Delete("item", {"id": 1})]
    assert take(tail, a_record("items", 0, 1, {"id": 1, "title": "old"}, 0, timestamp=5)) == []
    newest = {"id": 1, "title": "newest"}
    assert take(tail, a_record("items", 1, 1, newest, 0, timestamp=10)) == [Insert("item", newest)]


def test_a_key_that_nothing_orders_stops_the_tail_with_both_records_named() -> None:
    tail = tail_of(settings_of(topics="items"))
    take(tail, a_record("items", 7, 1, {"id": 1, "title": "a"}, 0))
    with pytest.raises(AdapterError) as caught:
        take(tail, a_record("items", 3, 1, {"id": 1, "title": "b"}, 1))
    assert caught.value.code == "key-unordered"
    assert "key [1] of table item" in caught.value.message
    assert "items[0] offset 7, items[1] offset 3; no order is configured" in caught.value.message
    assert "order_by=timestamp" in caught.value.fix


def test_a_record_that_makes_an_older_one_the_newest_again_has_the_topics_read_anew() -> None:
    tail = tail_of(BY_TIME)
    take(tail, a_record("items", 0, 1, {"id": 1, "title": "a"}, 0, timestamp=5))
    take(tail, a_record("items", 0, 1, {"id": 1, "title": "b"}, 1, timestamp=9))
    with pytest.raises(ResyncRequired, match=r"key \[1\] was newest in partition 1"):
        take(tail, a_record("items", 1, 1, {"id": 1, "title": "c"}, 1, timestamp=4))


def test_partitions_that_are_added_have_the_topic_tracked_from_its_start() -> None:
    asked: list[tuple[str, Sequence[int]]] = []

    def make_index(topic: str, _: Catalog, offsets: Sequence[int]) -> KeyIndex:
        asked.append((topic, tuple(offsets)))
        return KeyIndex()

    tail = KafkaTail(BY_TIME, KafkaPosition({"items": (4,)}, {"items": "i"}, ONE), make_index=make_index)
    take(tail, a_record("items", 4, 1, {"id": 1}))
    tail.follow([("items", 1)])
    assert asked == [("items", (5, 0))]
    [found] = tail.take(a_batch(a_record("items", 0, 2, {"id": 2}, 1)), 0.0)
    assert KafkaPosition.from_json(found.position).moved == MOVED
    tail.close()


def test_a_key_that_changes_its_partition_without_growth_has_the_topics_read_anew() -> None:
    tail = tail_of(settings_of(topics="items"), moved={})
    take(tail, a_record("items", 0, 1, {"id": 1}, 0), a_record("items", 0, 2, {"id": 2}, 1))
    with pytest.raises(ResyncRequired, match=r"items\[1\] offset 1 was in another partition before"):
        take(tail, a_record("items", 1, 1, {"id": 1}, 1))


@pytest.mark.parametrize("key", [None, 1])
def test_keys_in_the_value_alone_are_watched_as_well(key: int | None) -> None:
    tail = tail_of(settings_of(topics="items", key_mismatch="value"), moved={})
    take(tail, a_record("items", 0, key, {"id": 5}, 0), a_record("items", 0, key, {"id": 6}, 1))
    with pytest.raises(ResyncRequired):
        take(tail, a_record("items", 1, key, {"id": 6}, 0))


def test_nobody_watches_where_the_user_says_that_offsets_are_enough() -> None:
    tail = tail_of(settings_of(topics="items", order_by="offset"), moved={})
    assert len(take(tail, a_record("items", 0, 1, {"id": 1}, 0), a_record("items", 0, 1, {"id": 1}, 1))) == 2


def test_watching_takes_bounded_memory() -> None:
    recent = RecentKeys()
    assert not any(recent.has_moved(b"%d" % number, 0) for number in range(2 * REMEMBERED_KEYS + 10))
    assert len(recent._new) + len(recent._old) <= 2 * REMEMBERED_KEYS
    assert recent.has_moved(b"%d" % REMEMBERED_KEYS, 1)


def test_debeziums_deletes_tombstones_and_partial_rows_follow_the_source() -> None:
    given = settings_of(topics="items", format="debezium", order_by="source")
    items = Collection("items", [field("id", int), field("title", str)], schemas=False)

    def event(offset: int, partition: int, lsn: int, op: str, title: str | None) -> ConsumerRecord:
        row = {"id": 1, "title": title}
        made = items.event(op, row if op == "d" else None, None if op == "d" else row, source={"lsn": lsn})
        return a_record("items", offset, made.key(), made.value(), partition)

    tail = tail_of(given)
    assert len(take(tail, event(0, 0, 10, "c", "a"))) == 1
    partial = take(tail, event(0, 1, 20, "u", "__debezium_unavailable_value"))
    assert partial == [Update("item", {"id": 1}, None)]
    assert take(tail, event(1, 0, 15, "u", "late")) == []
    assert take(tail, event(1, 1, 30, "d", None)) == [Delete("item", {"id": 1})]
    assert take(tail, a_record("items", 2, {"id": 1}, None, 1)) == [Delete("item", {"id": 1})]
    assert take(tail, event(2, 0, 29, "u", "later still")) == []
    tail.close()


def test_a_record_that_cannot_be_read_counts_by_its_key_and_time(tmp_path: Path) -> None:
    aside = {"poison": "set-aside", "dead_letters": str(tmp_path / "dead.jsonl")}
    given = settings_of(topics="items", order_by="timestamp", unordered_keys="set-aside", **aside)
    topic = [[a_record("items", 0, 1, {"id": 1}, 0, 10)], [], []]
    position = KafkaPosition({"items": (1, 0, 0)}, {"items": "i"}, ONE, moved=MOVED)
    tail = KafkaTail(given, position, make_index=lambda _, __, offsets: index_of(given, topic, offsets))
    older, newer = (a_record("items", n, 1, b"{oops", 1, time_ms) for n, time_ms in enumerate((5, 20)))
    assert list(tail.take(a_batch(older), 0.0)) == []
    [transaction] = tail.take(a_batch(newer), 0.0)
    [change] = transaction.changes
    assert isinstance(change, BadRow)
    assert change.key == {"id": 1}
    tail.close()
