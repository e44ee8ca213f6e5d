"""Fixture `kafka`: one scratch broker for the whole run; tests take topics of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    # It is never restarted, so it need not be quick to notice that it is gone; and it is, when it gets no time to run.
    with KafkaBroker(broker_session_timeout_ms="60000") as broker:
        yield broker
