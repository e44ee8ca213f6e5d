"""Who may resume, who must start over, and what may be forgotten."""

from pathlib import Path

import pytest

from changesource_sdk.changelog.log import LogState, SnapshotRecord
from changesource_sdk.changelog.retention import Reset, Resume, decide, prune_point
from changesource_sdk.changelog.subscribers import Subscriber, SubscriberKey

STATE = LogState(generation=1, head="0m", oldest="0c")
SNAPSHOTS = [SnapshotRecord(w, 1, None, "", Path(), 0.0) for w in ("0a", "0f")]


@pytest.mark.parametrize(("last", "version"), [("0c", "0a"), ("0m", "0a"), ("0f", "0f"), ("0g", "0f")])
def test_a_consumer_within_the_log_resumes(last: str, version: str) -> None:
    assert decide(STATE, SNAPSHOTS, last, version) == Resume()


@pytest.mark.parametrize(
    ("last", "version", "reason", "above"),
    [
        ("0g", "0b", "no snapshot 0b", "0g"),
        ("0n", "0a", "newer than the log", "0n"),
        ("0b", "0a", "older than the log", "0b"),
        ("0d", "0f", "older than the log", "0f"),
    ],
)
def test_a_consumer_outside_the_log_is_reset_with_a_reason(last: str, version: str, reason: str, above: str) -> None:
    decision = decide(STATE, SNAPSHOTS, last, version)
    assert isinstance(decision, Reset)
    assert reason in decision.reason
    assert decision.above == above


def subscriber(acknowledged: str, seen_ms: float) -> Subscriber:
    return Subscriber(SubscriberKey("zero", 0, acknowledged), acknowledged, seen_ms)


def test_pruning_stops_at_the_slowest_live_subscriber_and_at_the_snapshot() -> None:
    live, gone = subscriber("0e", 900.0), subscriber("0b", 100.0)
    assert prune_point("0h", [live, gone], now_ms=1000.0, live_within_ms=200.0) == "0e"
    assert prune_point("0d", [live], now_ms=1000.0, live_within_ms=200.0) == "0d"
    assert prune_point("0h", [], now_ms=1000.0) == "0h"
