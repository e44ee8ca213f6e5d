"""Topics that grow from one partition to five while they are followed: always the model's rows."""

from __future__ import annotations

import pytest

from tests.adapters.kafka.grown_history import GrownHistory
from tests.support.kafka_broker import KafkaBroker


@pytest.mark.parametrize("seed", [1, 2])
def test_a_growing_topic_is_what_its_order_says(kafka: KafkaBroker, seed: int) -> None:
    GrownHistory(kafka, seed).run()
