"""Many random histories of growing topics, and what is left of them when the broker compacts the topic.

`FAULT_ROUNDS` histories from `FAULT_SEED` on; each is named by its seed when it fails.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.adapters.kafka.growing.histories import GrownHistory
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3_600)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 10)
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "200",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "3600000",
}
"""A topic that the broker compacts soon; tombstones stay for the length of a test."""


@pytest.fixture(scope="module")
def cleaning() -> Iterator[KafkaBroker]:
    """A broker that looks for topics to compact all the time."""
    with KafkaBroker(log_cleaner_backoff_ms="200", broker_session_timeout_ms="60000") as broker:
        yield broker


@pytest.mark.parametrize("seed", [SEED + number for number in range(ROUNDS)])
def test_a_growing_topic_is_what_its_order_says(cleaning: KafkaBroker, seed: int) -> None:
    GrownHistory(cleaning, seed).run()


@pytest.mark.parametrize("seed", [SEED + number for number in range(max(1, ROUNDS // 5))])
def test_compaction_changes_nothing(cleaning: KafkaBroker, seed: int) -> None:
    history = GrownHistory(cleaning, seed, **COMPACTED)
    history.run()
    before = _records(cleaning, history.topic)
    history.touch()
    until(lambda: _records(cleaning, history.topic) < before // 2, f"compaction, seed {seed}", seconds=120)
    history.compare()


def _records(broker: KafkaBroker, topic: str) -> int:
    """Records that a reader of the whole topic gets."""
    return sum(1 for _ in broker.records(topic))
