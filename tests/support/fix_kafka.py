"""Fixture `kafka`: one scratch broker for the whole run; tests take topics of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker
