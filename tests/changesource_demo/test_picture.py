"""The demo's picture, from what the parts say of themselves."""

from __future__ import annotations

from typing import Any

from changesource_demo.picture import UpstreamProgress, draw, origin_of
from protocol.watermark import from_int

ORIGIN = 1000
STORE: UpstreamProgress = {"writes": 7, "perSecond": 4.0, "age": 0.1, "touched": 12}


def log(head: int, read: int = 12) -> dict[str, Any]:
    stage = {"state": "tailing", "verdict": "ok", "watermark": from_int(head), "lane": "", "sinceProgress": 0.2}
    position = {"origin": "x", "seq": read, "schema": 1}
    described = {"head": from_int(head), "position": position, "snapshot": from_int(ORIGIN), "snapshotAge": 9.0}
    return {"stages": {"pipeline": stage}, "log": described}


def endpoint(*sent: int) -> dict[str, Any]:
    return {"streams": [{"sent": from_int(each)} for each in sent]}


def cache(version: int) -> dict[str, Any]:
    at = from_int(version)
    sync = {"version": at, "clients": 2, "pokes": 5, "queries": 1, "rows": 3, "advances": 4}
    return {"sync": sync, "replication": {"version": at, "phase": "following", "lag_ms": 3.0, "applied_time_ms": 1.0}}


def test_positions_are_transactions_since_the_first_snapshot() -> None:
    picture = draw(STORE, log(1009), endpoint(1009), cache(1007), ORIGIN)
    positions = {name: picture[name]["position"] for name in ("pipeline", "log", "endpoint", "replica", "queries")}
    assert positions == {"pipeline": 9, "log": 9, "endpoint": 9, "replica": 7, "queries": 7}
    assert [picture[name]["behind"] for name in ("endpoint", "replica", "queries")] == [0, 2, 2]
    assert origin_of(log(1009)) == ORIGIN


def test_the_store_is_ahead_by_the_keys_nobody_has_read() -> None:
    assert draw(STORE, log(1003, read=8), None, None, ORIGIN)["store"]["unread"] == 4
    assert draw(STORE | {"touched": None}, log(1003), None, None, ORIGIN)["store"]["unread"] is None


def test_an_endpoint_asked_after_the_log_was_read_is_not_ahead_of_it() -> None:
    picture = draw(STORE, log(1003), endpoint(1001, 1005), cache(1003), ORIGIN)
    assert (picture["log"]["position"], picture["endpoint"]["behind"], picture["replica"]["behind"]) == (5, 0, 2)


def test_the_log_has_its_distance_to_the_upstream_and_its_dead_letters() -> None:
    near, far = {"behind": 2, "behindSeconds": 0.0}, {"behind": 5, "behindSeconds": 3.5}
    nothing = {"behind": "unknown", "behindSeconds": "unknown"}
    for sources, expected in (
        ({"default": near}, (2, 0.0)),
        ({"a": near, "b": far}, (5, 3.5)),
        ({"a": near, "b": nothing}, ("unknown", "unknown")),
        ({}, ("unknown", "unknown")),
    ):
        document = {**log(1003), "upstream": sources, "deadLetters": {"total": 4, "counts": [], "newest": []}}
        shown = draw(STORE, document, None, None, ORIGIN)["log"]
        assert (shown["behindUpstream"], shown["behindSeconds"], shown["deadLetters"]) == (*expected, 4)


def test_what_does_not_run_is_not_known() -> None:
    picture = draw(STORE, None, None, None, 0)
    assert picture["log"]["position"] is picture["log"]["behindUpstream"] is picture["log"]["deadLetters"] is None
    assert picture["endpoint"] == {"streams": 0, "position": None, "behind": None}
    assert picture["replica"]["position"] is picture["queries"]["behind"] is picture["clients"]["connected"] is None
    assert picture["pipeline"] == {"lanes": [], "position": None}
    assert origin_of(None) is None
