"""A topic that was given more partitions: keys in several of them are one row each, or refused."""

from __future__ import annotations

import pytest

from changesource_sdk.errors import AdapterError
from tests.adapters.kafka.grown_topics import Written, grown_adapter, names, write
from tests.support.kafka_broker import KafkaBroker

OLD, NEW = 1_700_000_000_000, 1_700_000_009_000


@pytest.fixture
def grown(kafka: KafkaBroker) -> str:
    """Ids 1 to 3 in one partition; then, in a second one, 1 written again and 2 deleted."""
    topic = kafka.create_topic(kafka.topic_name("grown"))
    write(kafka, topic, [Written(0, number, "old", OLD, 1) for number in (1, 2, 3)])
    kafka.add_partitions(topic, 2)
    write(kafka, topic, [Written(1, 1, "new", NEW, 2), Written(1, 2, None, NEW)])
    return topic


def test_the_newest_record_of_a_key_counts_wherever_it_is(kafka: KafkaBroker, grown: str) -> None:
    assert names(grown_adapter(kafka, grown, order_by="timestamp")) == {1: "new", 3: "old"}


def test_a_key_in_two_partitions_whose_order_nothing_tells_is_refused(kafka: KafkaBroker, grown: str) -> None:
    with pytest.raises(AdapterError) as caught:
        names(grown_adapter(kafka, grown))
    assert caught.value.code == "key-unordered"
    assert "order_by" in caught.value.fix
