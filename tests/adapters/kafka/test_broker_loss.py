"""A broker that goes away and comes back: reading goes on by itself, with nothing lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.adapters.kafka.following import Following, an_adapter, begin_at, write
from tests.support.peers.kafka_broker import KafkaBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as own:
        yield own


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(KafkaBroker.kill, id="killed"),
        pytest.param(KafkaBroker.stop, id="stopped", marks=pytest.mark.faults),
    ],
)
def test_reading_goes_on_when_the_broker_is_back(broker: KafkaBroker, end: Callable[[KafkaBroker], None]) -> None:
    name = broker.create_topic(broker.topic_name("item"), 2)
    write(broker, name, 0)
    adapter = an_adapter(broker, name)
    with Following(adapter, begin_at(adapter)) as following:
        write(broker, name, 1)
        following.wait_for_ids([1])
        adapter.acknowledge(following.position)
        end(broker)
        broker.start_again()
        write(broker, name, 2)
        write(broker, name, 3, partition=1)
        following.wait(lambda: len(following.ids()) >= 3, "the records written after the restart")
        assert sorted(map(str, following.ids())) == ["1", "2", "3"]


@pytest.mark.faults
def test_a_broker_that_stays_away_is_told_and_does_not_hold_up_closing(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    name = broker.create_topic(broker.topic_name("item"))
    write(broker, name, 0)
    adapter = an_adapter(broker, name)
    with Following(adapter, begin_at(adapter)) as following:
        write(broker, name, 1)
        following.wait_for_ids([1])
        broker.kill()
        try:
            told = "the brokers do not answer; reading continues when they do"
            following.wait(lambda: told in caplog.messages, "the silence to be told")
            following.close()
        finally:
            broker.start_again()
    assert following.error is None
