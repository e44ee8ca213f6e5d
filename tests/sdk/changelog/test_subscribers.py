"""What consumers acknowledged."""

from pathlib import Path

from changesource_sdk.changelog.sqlite_subscribers import SqliteSubscribers
from changesource_sdk.changelog.subscribers import Subscriber, SubscriberKey

KEY = SubscriberKey("zero", 0, "0a")


def test_acknowledgements_are_cumulative_and_never_go_back(tmp_path: Path) -> None:
    subscribers = SqliteSubscribers(tmp_path)
    subscribers.acknowledge(KEY, "0c", 10.0)
    subscribers.acknowledge(KEY, "0b", 20.0)
    assert subscribers.all() == [Subscriber(KEY, "0c", 20.0)]


def test_subscribers_survive_a_restart_and_can_be_forgotten(tmp_path: Path) -> None:
    first = SqliteSubscribers(tmp_path)
    other = SubscriberKey("other", 1, "0a")
    first.acknowledge(KEY, "0c", 1.0)
    first.acknowledge(other, "0d", 1.0)
    first.close()
    again = SqliteSubscribers(tmp_path)
    assert [subscriber.key for subscriber in again.all()] == [other, KEY]
    again.forget(other)
    assert [subscriber.key for subscriber in again.all()] == [KEY]
