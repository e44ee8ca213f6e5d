"""Topics that grow from one partition to five while they are followed: always the model's rows."""

from __future__ import annotations

from tests.adapters.kafka.growing.histories import GrownHistory
from tests.support.peers.kafka_broker import KafkaBroker


def test_a_growing_topic_is_what_its_order_says(kafka: KafkaBroker) -> None:
    GrownHistory(kafka, seed=1).run()
