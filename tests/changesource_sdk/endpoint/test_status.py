"""Stuck, slow, failing, dead and stopped are told apart."""

from __future__ import annotations

import time
from dataclasses import asdict

import pytest

from changesource_sdk.changelog.coordination.consumers import Consumer, ConsumerKey
from changesource_sdk.changelog.files.atomic_json import write_json
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.endpoint.status import describe, set_gauges
from changesource_sdk.observe.metrics import EndpointMetrics
from changesource_sdk.observe.warnings import Holds, Warned
from tests.changesource_sdk.endpoint.written_state import WrittenState

ERROR = {"code": "down", "message": "store is down", "where": "", "fix": "start it"}


def stage_verdict(store: LogStore, **report: object) -> object:
    write_json(store.layout.stages / "pipeline.json", {"stage": "pipeline", "transactions": 3, "error": None, **report})
    reader = store.open_log()
    document = describe(store, reader, [])
    reader.close()
    metrics = EndpointMetrics()
    set_gauges(document, metrics)
    failing = metrics.registry.get_sample_value("changesource_stage_failing", {"stage": "pipeline"})
    assert failing == (1.0 if report.get("error") else 0.0)
    return document["stages"]["pipeline"]["verdict"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("state_name", "alive_ago", "moved_ago", "error", "verdict"),
    [
        ("tailing", 1, 3600, None, "ok"),
        ("snapshot", 1, 2, None, "ok"),
        ("snapshot", 1, 60, None, "stuck"),
        ("planning", 1, 60, None, "ok"),
        ("planning", 1, 600, None, "stuck"),
        ("tailing", 60, 1, None, "dead"),
        ("backing-off", 1, 1, ERROR, "failing"),
        ("stopped", 3600, 3600, None, "stopped"),
    ],
)
def test_a_stage_is_judged_by_its_signs_of_life_and_of_progress(
    state: WrittenState, state_name: str, alive_ago: int, moved_ago: int, error: object, verdict: str
) -> None:
    now_ms = time.time() * 1000
    total = 0 if state_name == "planning" else 4
    state_name = state_name.replace("planning", "snapshot")
    report = {
        "state": state_name,
        "total": total,
        "updated_ms": now_ms - alive_ago * 1000,
        "moved_ms": now_ms - moved_ago * 1000,
    }
    assert stage_verdict(state.store, **report, error=error) == verdict


@pytest.mark.parametrize(
    ("holds", "said_ago", "error", "verdict"),
    [
        ("", 1, None, "ok"),
        ("stream", 1, None, "stuck"),
        ("stream", 3600, None, "ok"),
        ("table", 1, None, "degraded"),
        ("stream", 1, ERROR, "failing"),
    ],
)
def test_a_warning_that_holds_something_up_is_part_of_the_verdict(
    state: WrittenState, holds: Holds, said_ago: int, error: object, verdict: str
) -> None:
    now_ms = time.time() * 1000
    said_ms = now_ms - said_ago * 1000
    held = Warned("code", "here", "it waits", "", "store", "warning", holds, False, 1, said_ms, said_ms)
    write_json(state.store.layout.stages / "warnings.json", {"warnings": [asdict(held)], "updated_ms": now_ms})
    report = {"state": "tailing", "updated_ms": now_ms, "moved_ms": now_ms}
    assert stage_verdict(state.store, **report, error=error) == verdict


def test_a_consumer_is_behind_by_the_transactions_it_lacks(state: WrittenState) -> None:
    state.snapshot()
    marks = [state.insert(str(number)) for number in range(5)]
    reader = state.store.open_log()
    known = [Consumer(ConsumerKey("zero", 0, ""), mark, 0.0) for mark in ("00", marks[0], marks[3], marks[4], "zz")]
    described = describe(state.store, reader, known)["subscribers"]
    reader.close()
    assert [each["behind"] for each in described] == [5, 4, 1, 0, 0]  # type: ignore[attr-defined]
