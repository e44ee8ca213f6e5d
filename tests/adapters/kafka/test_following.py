"""The tail against a real broker: what comes, where it goes on, and each trouble with the words it is told in."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from adapters.kafka import KafkaAdapter
from changesource_sdk.adapter import AddColumn
from changesource_sdk.errors import AdapterError, ResyncRequired
from tests.adapters.kafka.following import PATIENCE_S, Following, an_adapter, begin_at, write
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.waiting import until
from tests.support.workloads.debezium import Collection, end, field, member

MakeTopic = Callable[..., str]


@pytest.fixture
def topic(kafka: KafkaBroker) -> MakeTopic:
    """A topic with one row, id 0, so that its columns are known."""

    def make(partitions: int = 1, **settings: str) -> str:
        name = kafka.create_topic(kafka.topic_name("item"), partitions, **settings)
        write(kafka, name, 0)
        return name

    return make


def test_records_come_as_they_are_written_and_reading_goes_on_where_it_ended(
    kafka: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic(2)
    position = begin_at(an_adapter(kafka, name))
    with Following(an_adapter(kafka, name), position) as first:
        write(kafka, name, 1, 2)
        first.wait_for_ids([1, 2])
        position = first.position
    write(kafka, name, 3, partition=1)
    with Following(an_adapter(kafka, name), position) as second:
        second.wait_for_ids([3])
        write(kafka, name, 4)
        second.wait_for_ids([3, 4])


def test_records_that_were_not_committed_never_come(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    with Following(an_adapter(kafka, name), begin_at(an_adapter(kafka, name))) as following:
        with kafka.producer(transactional_id=name, enable_idempotence=True) as producer:
            producer.init_transactions()
            for number, finish in ((1, producer.abort_transaction), (2, producer.commit_transaction)):
                producer.begin_transaction()
                producer.send(name, key=b"%d" % number, value=b'{"id":%d}' % number)
                producer.flush()
                finish()
        following.wait_for_ids([2])


def test_partitions_added_while_following_are_followed(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    with Following(an_adapter(kafka, name), begin_at(an_adapter(kafka, name))) as following:
        write(kafka, name, 1)
        following.wait_for_ids([1])
        kafka.add_partitions(name, 3)
        write(kafka, name, 2, partition=2)
        following.wait_for_ids([1, 2])
        write(kafka, name, 3, partition=0)
        following.wait_for_ids([1, 2, 3])
        position = following.position
    with Following(an_adapter(kafka, name), position) as again:
        write(kafka, name, 4, partition=2)
        again.wait_for_ids([4])


def test_a_topic_created_again_while_following_calls_for_a_new_snapshot(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    with Following(an_adapter(kafka, name), begin_at(an_adapter(kafka, name))) as following:
        write(kafka, name, 1)
        following.wait_for_ids([1])
        kafka.delete_topic(name)
        kafka.create_topic(name)
        write(kafka, name, 7, 8, 9)
        error = following.wait_for_error()
    assert isinstance(error, ResyncRequired)
    # On a busy machine it may be away for so long that this is told already.
    assert error.message in (f"topic {name} was deleted and created again", f"topic {name} was deleted")
    assert following.ids() == [1]


def test_a_topic_created_again_meanwhile_calls_for_a_new_snapshot(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    position = begin_at(an_adapter(kafka, name))
    kafka.delete_topic(name)
    kafka.create_topic(name)
    write(kafka, name, 7, 8, 9)
    with pytest.raises(ResyncRequired, match="was deleted and created again"):
        next(an_adapter(kafka, name).changes(position))


def test_a_topic_that_is_deleted_calls_for_a_new_snapshot_and_its_absence_is_told(
    kafka: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic()
    adapter = an_adapter(kafka, name)
    with Following(adapter, begin_at(adapter)) as following:
        write(kafka, name, 1)
        following.wait_for_ids([1])
        kafka.delete_topic(name)
        error = following.wait_for_error()
    assert isinstance(error, ResyncRequired)
    assert error.message == f"topic {name} was deleted"
    with pytest.raises(AdapterError, match=f"there is no topic {name}"):
        adapter.snapshot()


def test_records_removed_before_they_were_read_call_for_a_new_snapshot(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    position = begin_at(an_adapter(kafka, name))
    write(kafka, name, 1, 2, 3)
    kafka.delete_records(name, {0: 3})
    with pytest.raises(ResyncRequired) as caught:
        next(an_adapter(kafka, name).changes(position))
    assert caught.value.message == f"records 1 to 2 of {name}[0] were removed before they were read"
    assert "retention.ms" in caught.value.fix


def test_a_record_that_cannot_be_read_stops_the_stream(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    with Following(an_adapter(kafka, name), begin_at(an_adapter(kafka, name))) as following:
        with kafka.producer() as producer:
            producer.send(name, key=b"1", value=b"{oops")
        error = following.wait_for_error()
    assert isinstance(error, AdapterError)
    assert error.code == "poison-record"
    assert f"the record at {name}[0] offset 1 cannot be read" in error.message


def test_a_column_that_appears_is_told_once(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    with Following(an_adapter(kafka, name), begin_at(an_adapter(kafka, name))) as following:
        with kafka.producer() as producer:
            for number in (1, 2):
                producer.send(name, key=b"%d" % number, value=b'{"id":%d,"size":5}' % number)
        following.wait_for_ids([1, 2])
        changes = [change for one in following.transactions for change in one.changes]
    assert [type(change) for change in changes].count(AddColumn) == 1
    assert isinstance(changes[0], AddColumn)


# --- transactions of the source ---


class Bank:
    """Two topics and one of transactions, as Debezium writes them."""

    def __init__(self, broker: KafkaBroker) -> None:
        prefix = broker.topic_name("bank")
        self.broker = broker
        self.accounts = Collection(f"{prefix}.public.account", [field("id", int), field("owner", str)])
        self.entries = Collection(f"{prefix}.public.entry", [field("id", int), field("amount", int)], schemas=False)
        self.ends = f"{prefix}.transaction"
        for collection in (self.accounts, self.entries):
            broker.create_topic(collection.topic, 2)
        broker.create_topic(self.ends)
        self.write(self.accounts, 0, {"id": 0, "owner": "a"})
        self.write(self.entries, 0, {"id": 0, "amount": 1})

    def adapter(self, **settings: object) -> KafkaAdapter:
        topics = f"{self.accounts.topic},{self.entries.topic}"
        return an_adapter(self.broker, topics, format="debezium", transaction_topic=self.ends, **settings)

    def write(self, collection: Collection, partition: int, row: dict[str, object], *place: object) -> None:
        block = member(str(place[0]), int(str(place[1])), 1) if place else None
        event = collection.event("c", None, row, block)
        with self.broker.producer() as producer:
            producer.send(collection.topic, key=event.key(), value=event.value(), partition=partition)

    def end(self, name: str, **counts: int) -> None:
        key, value = end(name, counts)
        with self.broker.producer() as producer:
            producer.send(self.ends, key=key, value=value)


def test_transactions_of_the_source_come_whole_and_in_the_order_they_ended(kafka: KafkaBroker) -> None:
    bank = Bank(kafka)
    position = begin_at(bank.adapter())
    with Following(bank.adapter(), position) as following:
        bank.write(bank.entries, 0, {"id": 12, "amount": 5}, "second", 2)
        bank.write(bank.accounts, 1, {"id": 1, "owner": "a"}, "first", 1)
        bank.write(bank.accounts, 0, {"id": 11, "owner": "b"}, "second", 1)
        bank.end("first", account=1, entry=1)
        bank.end("second", account=1, entry=1, unfollowed=9)
        bank.write(bank.entries, 1, {"id": 2, "amount": 5}, "first", 2)
        following.wait_for_ids([1, 2, 11, 12])
        assert len(following.transactions) == 2
        position = following.transactions[0].position
    with Following(bank.adapter(), position) as again:
        again.wait_for_ids([11, 12])
        bank.write(bank.accounts, 0, {"id": 21, "owner": "c"}, "third", 1)
        bank.end("third", account=1)
        again.wait_for_ids([11, 12, 21])


def test_a_transaction_whose_end_never_comes_is_named(kafka: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    bank = Bank(kafka)
    position = begin_at(bank.adapter())
    expected = "1 record of transaction 7:42 came, and its END has not; every start reads from its records on"
    with (
        caplog.at_level(logging.WARNING, "changesource"),
        Following(bank.adapter(stall_after=0.5), position) as following,
    ):
        bank.write(bank.accounts, 0, {"id": 1, "owner": "a"}, "7:42", 1)
        following.wait(lambda: expected in caplog.messages, "the alarm")
    assert following.transactions == []


# --- the consumer group, doctor ---


def test_acknowledged_offsets_are_committed_for_lag_tools_and_nobody_who_joins_takes_anything(
    kafka: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic()
    group = kafka.topic_name("group")
    adapter = an_adapter(kafka, name, group=group)
    with Following(adapter, begin_at(adapter)) as following:
        write(kafka, name, 1, 2)
        following.wait_for_ids([1, 2])
        adapter.acknowledge(following.position)
        until(lambda: committed(kafka, group, name) == 3, "the offset of the group", seconds=PATIENCE_S)
        # It may join before it knows the topic's partitions, and gets none until it asks for metadata again.
        member_of_group = KafkaConsumer(
            name, bootstrap_servers=kafka.bootstrap, group_id=group, metadata_max_age_ms=1_000
        )
        try:
            until(lambda: joined(member_of_group), "the other consumer to join", seconds=PATIENCE_S)
            write(kafka, name, 3, 4)
            following.wait_for_ids([1, 2, 3, 4])
        finally:
            member_of_group.close()


def joined(member_of_group: KafkaConsumer) -> bool:
    member_of_group.poll(timeout_ms=100)
    return bool(member_of_group.assignment())


def committed(broker: KafkaBroker, group: str, topic: str) -> int | None:
    """What a lag tool sees; None as long as there is nothing."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
    try:
        found: int | None = consumer.committed(TopicPartition(topic, 0), timeout_ms=5_000)
    except KafkaError:
        found = None
    finally:
        consumer.close()
    return found


def test_doctor_tells_what_is_there_and_what_is_missing(kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic(2)
    found = {check.name: check for check in an_adapter(kafka, name).examine()}
    assert all(check.ok for check in found.values())
    assert found["topics"].message == f"followed: {name} (2 partitions)"
    missing = {check.name: check for check in an_adapter(kafka, f"{name},nowhere").examine()}
    assert not missing["topics"].ok
    assert missing["topics"].message == "there is no topic nowhere"


def test_brokers_that_are_not_there_are_named(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.kafka.broker.client.FIRST_TRY_MS", 100)
    monkeypatch.setattr("adapters.kafka.broker.client.CONNECT_MS", 300)
    adapter = KafkaAdapter("127.0.0.1:9", "items", format="upsert")
    with pytest.raises(AdapterError) as caught:
        adapter.snapshot()
    assert caught.value.code == "broker-unreachable"
    assert caught.value.where == "127.0.0.1:9"
