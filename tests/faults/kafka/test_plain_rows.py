"""The Kafka adapter keeps the adapter contract without the source's transactions, too: plain rows, one by one."""

import pytest

from changesource_sdk.testing.conformance import conformance
from tests.conformance.kafka_harness import PlainKafkaHarness
from tests.support.peers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.faults


class TestPlainRows(conformance(PlainKafkaHarness)):  # type: ignore[misc]
    @pytest.fixture
    def harness(self, kafka: KafkaBroker) -> PlainKafkaHarness:
        return PlainKafkaHarness(kafka)
