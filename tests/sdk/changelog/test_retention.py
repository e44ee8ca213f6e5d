"""What may be forgotten."""

from changesource_sdk.changelog.retention import prune_point
from changesource_sdk.changelog.subscribers import Subscriber, SubscriberKey


def subscriber(acknowledged: str, seen_ms: float) -> Subscriber:
    return Subscriber(SubscriberKey("zero", 0, acknowledged), acknowledged, seen_ms)


def test_pruning_stops_at_the_slowest_live_subscriber_and_at_the_snapshot() -> None:
    live, gone = subscriber("0e", 900.0), subscriber("0b", 100.0)
    assert prune_point("0h", [live, gone], now_ms=1000.0, live_within_ms=200.0) == "0e"
    assert prune_point("0d", [live], now_ms=1000.0, live_within_ms=200.0) == "0d"
    assert prune_point("0h", [], now_ms=1000.0) == "0h"
