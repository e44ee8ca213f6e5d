"""The Kafka adapter keeps the adapter contract, on a real broker, with the source's transactions."""

import pytest

from changesource_sdk.testing.conformance import conformance
from tests.conformance.kafka_harness import KafkaHarness
from tests.support.peers.kafka_broker import KafkaBroker


class TestKafka(conformance(KafkaHarness)):  # type: ignore[misc]
    @pytest.fixture
    def harness(self, kafka: KafkaBroker) -> KafkaHarness:
        return KafkaHarness(kafka)
