"""What consumers acknowledged, in every store."""

from changesource_sdk.changelog.subscribers import Subscriber, SubscriberKey
from tests.sdk.changelog.logs_under_test import LogUnderTest

KEY = SubscriberKey("zero", 0, "0a")


def test_acknowledgements_are_cumulative_and_never_go_back(log: LogUnderTest) -> None:
    subscribers = log.subscribers()
    subscribers.acknowledge(KEY, "0c", 10.0)
    subscribers.acknowledge(KEY, "0b", 20.0)
    assert subscribers.all() == [Subscriber(KEY, "0c", 20.0)]


def test_subscribers_survive_a_restart_and_can_be_forgotten(log: LogUnderTest) -> None:
    first = log.subscribers()
    other = SubscriberKey("other", 1, "0a")
    first.acknowledge(KEY, "0c", 1.0)
    first.acknowledge(other, "0d", 1.0)
    again = log.subscribers()
    assert [subscriber.key for subscriber in again.all()] == [other, KEY]
    again.forget(other)
    assert [subscriber.key for subscriber in again.all()] == [KEY]
