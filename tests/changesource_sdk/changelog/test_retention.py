"""What may be forgotten."""

from changesource_sdk.changelog.coordination.consumers import Consumer, ConsumerKey
from changesource_sdk.changelog.retention import MOST_CONSUMERS, REPLACED_WITHIN_MS, forgettable, prune_point

DAY_MS = 24 * 3600 * 1000.0


def subscriber(acknowledged: str, seen_ms: float) -> Consumer:
    return Consumer(ConsumerKey("zero", 0, acknowledged), acknowledged, seen_ms)


def test_pruning_stops_at_the_slowest_live_subscriber_and_at_the_snapshot() -> None:
    live, gone = subscriber("0e", 900.0), subscriber("0b", 100.0)
    assert prune_point("0h", [live, gone], now_ms=1000.0, live_within_ms=200.0) == "0e"
    assert prune_point("0d", [live], now_ms=1000.0, live_within_ms=200.0) == "0d"
    assert prune_point("0h", [], now_ms=1000.0, live_within_ms=DAY_MS) == "0h"


def replica(version: str, acknowledged: str, seen_ms: float, app: str = "zero") -> Consumer:
    return Consumer(ConsumerKey(app, 0, version), acknowledged, seen_ms)


def test_an_issued_version_keeps_what_follows_the_transaction_it_was_issued_at() -> None:
    assert prune_point("0z", [replica("0k.0a", "0k.0a", 0.0)], now_ms=1.0, live_within_ms=DAY_MS) == "0k"


def test_an_initial_sync_that_was_given_up_keeps_the_log_for_a_moment_only() -> None:
    given_up = replica("0k.0a", "0c", seen_ms=0.0)
    assert prune_point("0z", [given_up], now_ms=REPLACED_WITHIN_MS, live_within_ms=DAY_MS) == "0c"
    assert prune_point("0z", [given_up], now_ms=REPLACED_WITHIN_MS + 1, live_within_ms=DAY_MS) == "0z"


def test_a_replica_that_another_has_replaced_keeps_the_log_for_a_moment_only() -> None:
    old, new = replica("0c", "0e", seen_ms=0.0), replica("0k.0a", "0m", seen_ms=REPLACED_WITHIN_MS)
    assert prune_point("0z", [old, new], now_ms=REPLACED_WITHIN_MS, live_within_ms=DAY_MS) == "0e"
    assert prune_point("0z", [old, new], now_ms=REPLACED_WITHIN_MS + 1, live_within_ms=DAY_MS) == "0m"
    still_syncing = replica("0x.0a", "0m", seen_ms=0.0)
    assert prune_point("0z", [old, still_syncing], now_ms=REPLACED_WITHIN_MS + 1, live_within_ms=DAY_MS) == "0e"


def test_subscribers_that_cannot_resume_are_forgotten_but_for_the_newest_of_a_shard() -> None:
    old, newest = replica("0c", "0e", seen_ms=0.0), replica("0d", "0f", seen_ms=0.0)
    can_resume, lives = replica("0b", "0k", seen_ms=0.0), replica("0a", "0b", seen_ms=950.0)
    known = [old, newest, can_resume, lives]
    assert forgettable(known, oldest="0h", now_ms=1000.0, live_within_ms=100.0) == [old.key]


def test_a_flood_of_names_displaces_itself() -> None:
    resumed = [replica("0a", "0b", seen_ms=0.0, app=f"app{number}") for number in range(5)]
    flood = [replica("0k.0a", "0c", seen_ms=900.0, app=f"flood{number}") for number in range(MOST_CONSUMERS)]
    gone = forgettable([*resumed, *flood], oldest="00", now_ms=1000.0, live_within_ms=DAY_MS)
    assert gone == [each.key for each in flood[:5]]
