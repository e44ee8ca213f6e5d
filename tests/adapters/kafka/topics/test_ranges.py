"""Ranges of a real partition: committed records only, to an end that may lie behind the last of them."""

from __future__ import annotations

from contextlib import closing

from kafka import KafkaProducer
from kafka.structs import TopicPartition

from adapters.kafka.broker.client import make_consumer
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.topics.ranges import OffsetRange, read_range
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.waiting import until


def test_what_was_aborted_is_not_read_and_the_end_is_reached(kafka: KafkaBroker) -> None:
    topic = kafka.create_topic(kafka.topic_name("ranges"))
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value, is_kept in ((b"one", True), (b"aborted", False), (b"two", True), (b"aborted too", False)):
        producer.begin_transaction()
        producer.send(topic, value=value)
        if is_kept:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    producer.close()
    with closing(make_consumer(KafkaSettings.parse(kafka.bootstrap, topic, "upsert"))) as consumer:
        place = TopicPartition(topic, 0)
        # Four records and four markers, of which the last are written after the producer was answered.
        until(lambda: consumer.end_offsets([place])[place] == 8, "the last marker")
        whole = [record.value for batch in read_range(consumer, OffsetRange(topic, 0, 0, 8)) for record in batch]
        part = [record.value for batch in read_range(consumer, OffsetRange(topic, 0, 1, 5)) for record in batch]
    assert (whole, part) == ([b"one", b"two"], [b"two"])
