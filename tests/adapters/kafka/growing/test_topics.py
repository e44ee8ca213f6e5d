"""A topic that was given more partitions: keys in several of them are one row each, or refused."""

from __future__ import annotations

import logging

import pytest

from adapters.kafka.position import KafkaPosition
from changesource_sdk.adapter import Check, Position
from changesource_sdk.errors import AdapterError, ConfigurationError, ResyncRequired
from tests.adapters.kafka.following import Following
from tests.adapters.kafka.growing.topics import Written, followed, grown_adapter, grown_topic, names, state, write
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.workloads.debezium import Collection, field

OLD, NEW = 1_700_000_000_000, 1_700_000_009_000


@pytest.fixture
def grown(kafka: KafkaBroker) -> str:
    """Ids 1 to 3 in one partition; then, in a second one, 1 written again and 2 deleted."""
    topic = grown_topic(kafka)
    write(kafka, topic, [Written(0, number, "old", OLD, 1) for number in (1, 2, 3)])
    kafka.add_partitions(topic, 2)
    write(kafka, topic, [Written(1, 1, "new", NEW, 2), Written(1, 2, None, NEW)])
    return topic


def test_the_newest_record_of_a_key_counts_wherever_it_is(kafka: KafkaBroker, grown: str) -> None:
    adapter = grown_adapter(kafka, grown, order_by="timestamp")
    assert names(adapter) == {1: "new", 3: "old"}
    write(kafka, grown, [Written(0, 1, "back again", NEW + 1), Written(0, 2, "alive again", NEW + 1)])
    assert names(adapter) == {1: "back again", 2: "alive again", 3: "old"}
    write(kafka, grown, [Written(1, 3, None, OLD - 1)])
    assert names(adapter) == {1: "back again", 2: "alive again", 3: "old"}


def test_a_key_in_two_partitions_whose_order_nothing_tells_is_refused(kafka: KafkaBroker, grown: str) -> None:
    with pytest.raises(AdapterError) as caught:
        names(grown_adapter(kafka, grown))
    assert caught.value.code == "key-unordered"
    assert "key [1] of table item has records in several partitions" in caught.value.message
    assert f"{grown}[0] offset 0, {grown}[1] offset 0; no order is configured; 1 more" in caught.value.message
    assert "order_by" in caught.value.fix


def test_a_tombstone_without_the_ordering_column_is_refused_and_may_be_left_out(
    kafka: KafkaBroker, grown: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AdapterError, match=r"key \[2\] .* the one in partition 1 has no order by column:version"):
        names(grown_adapter(kafka, grown, order_by="column:version"))
    monkeypatch.setattr(logging.getLogger("changesource"), "propagate", True)
    with caplog.at_level(logging.WARNING, "changesource"):
        assert names(grown_adapter(kafka, grown, order_by="column:version", unordered_keys="set-aside")) == {
            1: "new",
            3: "old",
        }
    told = [record.message for record in caplog.records if record.name.startswith("changesource")]
    assert told == ["a row is left out: key-unordered"]


def test_a_column_that_is_not_there_cannot_order(kafka: KafkaBroker, grown: str) -> None:
    with pytest.raises(ConfigurationError, match="table item has no column changed"):
        grown_adapter(kafka, grown, order_by="column:changed").snapshot()


def test_the_same_time_in_two_partitions_is_refused(kafka: KafkaBroker, grown: str) -> None:
    write(kafka, grown, [Written(1, 3, "tie", OLD)])
    with pytest.raises(AdapterError, match=r"key \[3\] .* they have the same order by timestamp"):
        names(grown_adapter(kafka, grown, order_by="timestamp"))


def test_the_tail_after_the_snapshot_agrees_with_a_new_snapshot(kafka: KafkaBroker, grown: str) -> None:
    adapter = grown_adapter(kafka, grown, order_by="timestamp")
    rows, position = state(adapter)
    assert KafkaPosition.from_json(position).moved == {grown: "timestamp/refuse"}
    # Of an old producer, which writes where the keys were before.
    write(kafka, grown, [Written(0, 1, "late", OLD + 1), Written(0, 2, "late", OLD + 1), Written(0, 9, "end", NEW + 5)])
    with Following(grown_adapter(kafka, grown, order_by="timestamp"), position) as following:
        following.wait_for_ids([9])
        assert followed(rows, following) == {1: "new", 3: "old", 9: "end"}
    assert names(adapter) == {1: "new", 3: "old", 9: "end"}


def test_keys_that_move_while_they_are_followed_keep_their_order(kafka: KafkaBroker) -> None:
    topic = grown_topic(kafka)
    write(kafka, topic, [Written(0, number, "old", OLD) for number in (1, 2, 3)])
    rows, position = state(grown_adapter(kafka, topic, order_by="timestamp"))
    with Following(grown_adapter(kafka, topic, order_by="timestamp"), position) as following:
        kafka.add_partitions(topic, 2)
        write(kafka, topic, [Written(1, 1, "new", NEW), Written(1, 2, None, NEW), Written(1, 8, "seen", NEW)])
        following.wait_for_ids([1, 8])
        write(kafka, topic, [Written(0, 1, "late", OLD + 1), Written(0, 2, "late", OLD + 1), Written(0, 9, "end", NEW)])
        following.wait_for_ids([1, 8, 9])
        rows = followed(rows, following)
        position = following.position
    assert rows == {1: "new", 3: "old", 8: "seen", 9: "end"}
    # The same after a restart: what was read before is read again for its keys.
    write(kafka, topic, [Written(0, 1, "later", OLD + 2), Written(0, 10, "end", NEW)])
    with Following(grown_adapter(kafka, topic, order_by="timestamp"), position) as following:
        following.wait_for_ids([10])
    assert names(grown_adapter(kafka, topic, order_by="timestamp")) == {**rows, 10: "end"}


def test_a_topic_that_grew_while_nobody_followed_is_refused_when_a_key_has_moved(kafka: KafkaBroker) -> None:
    topic = grown_topic(kafka)
    write(kafka, topic, [Written(0, 1, "old", OLD)])
    position = grown_adapter(kafka, topic).snapshot().position
    kafka.add_partitions(topic, 2)
    write(kafka, topic, [Written(1, 2, "elsewhere", NEW)])
    with Following(grown_adapter(kafka, topic), position) as following:
        following.wait_for_ids([2])
        write(kafka, topic, [Written(1, 1, "new", NEW)])
        error = following.wait_for_error()
    assert isinstance(error, AdapterError)
    assert error.code == "key-unordered"


def of_the_version_before(position: Position) -> Position:
    assert isinstance(position, dict)
    return {name: value for name, value in position.items() if name != "moved"}


def test_a_position_of_the_version_before_is_gone_on_with_unless_keys_have_moved(
    kafka: KafkaBroker, grown: str
) -> None:
    adapter = grown_adapter(kafka, grown, order_by="timestamp")
    with pytest.raises(ResyncRequired, match="keys lie in several partitions"):
        next(iter(adapter.changes(of_the_version_before(adapter.snapshot().position))))
    topic = grown_topic(kafka, 2)
    write(kafka, topic, [Written(0, 1, "one", OLD), Written(1, 2, "two", OLD)])
    position = of_the_version_before(grown_adapter(kafka, topic).snapshot().position)
    kafka.add_partitions(topic, 3)
    write(kafka, topic, [Written(2, 3, "three", NEW)])
    with Following(grown_adapter(kafka, topic), position) as following:
        following.wait_for_ids([3])
        assert KafkaPosition.from_json(following.position).moved == {topic: "/refuse"}


def test_another_order_has_the_topics_read_anew(kafka: KafkaBroker, grown: str) -> None:
    position = grown_adapter(kafka, grown, order_by="timestamp").snapshot().position
    with pytest.raises(ResyncRequired, match=f"keys of topic {grown} are ordered otherwise"):
        next(iter(grown_adapter(kafka, grown, order_by="timestamp", unordered_keys="set-aside").changes(position)))


def test_debeziums_source_orders_rows_deletes_and_what_compaction_leaves_of_them(kafka: KafkaBroker) -> None:
    topic = grown_topic(kafka, 2)
    items = Collection(topic, [field("id", int, optional=False), field("name", str)])
    with kafka.producer() as producer:

        def send(partition: int, op: str, number: int, name: str, lsn: int, *, bare: bool = False) -> None:
            row = {"id": number, "name": name}
            made = items.event(op, row if op == "d" else None, None if op == "d" else row, source={"lsn": lsn})
            producer.send(topic, key=made.key(), value=None if bare else made.value(), partition=partition)

        for number in (1, 2, 3):
            send(0, "c", number, "old", 10 + number)
        send(1, "u", 1, "new", 21)
        send(1, "d", 2, "old", 22)
        send(1, "d", 2, "old", 22, bare=True)
    adapter = grown_adapter(kafka, topic, format="debezium", order_by="source", tables={})
    assert names(adapter) == {1: "new", 3: "old"}
    with kafka.producer() as producer:
        send(1, "d", 3, "old", 0, bare=True)
    with pytest.raises(AdapterError, match=r"key \[3\] .* the one in partition 1 has no order by source"):
        names(adapter)


def test_a_topic_that_is_said_to_be_ordered_by_offsets_is_not_looked_at(kafka: KafkaBroker, grown: str) -> None:
    adapter = grown_adapter(kafka, grown, order_by="offset")
    taken = adapter.snapshot()
    assert sum(1 for partition in taken.partitions for _ in partition.rows()) == 4
    with pytest.raises(ResyncRequired, match="ordered otherwise"):
        next(iter(grown_adapter(kafka, grown, order_by="timestamp").changes(taken.position)))


def test_doctor_tells_of_keys_in_several_partitions_that_nothing_orders(kafka: KafkaBroker, grown: str) -> None:
    def order(**settings: object) -> Check:
        return next(check for check in grown_adapter(kafka, grown, **settings).examine() if check.name == "order")

    assert not order().ok
    assert order().message == (
        f"keys lie in several partitions of {grown}, and no order is configured, so that they are refused"
    )
    assert "order_by=timestamp" in order().fix
    assert order(order_by="timestamp").ok
