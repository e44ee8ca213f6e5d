"""Several sources in one log, in this process; the log in each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.memory import MemoryStore
from changesource_sdk.adapter import Insert
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.pipeline.compact_once import compact_once
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.inline import InlineRunner
from changesource_sdk.positions import from_text
from tests.changesource_sdk.changelog.logs_under_test import postgres_store
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, watched
from tests.changesource_sdk.pipeline.sources.source_fixtures import (
    UPSTREAMS,
    SwitchedAdapter,
    error_code,
    insert,
    rows_in_log,
    running,
    spec,
    stage,
    table,
    tables_of,
    until_rows,
    upstream,
)


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    UPSTREAMS.clear()
    state = tmp_path / "state"
    made: LogStore = SqliteLogStore(state)
    if request.param == "postgres":
        made = postgres_store(request.getfixturevalue("postgres").url(), state)
    yield made
    made.close()


def positions(seen: Watched) -> dict[str, object]:
    rows = seen.log.state().sources.values()
    return {row.name: None if row.position is None else from_text(row.position) for row in rows}


def test_sources_share_a_log_and_continue_after_a_restart(log: LogStore) -> None:
    upstream("crm", ["user"], rows=2)
    upstream("events", ["event"], rows=1)
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0, 1}, "event": {0}})
        assert seen.log.state().generation == 1
        insert("crm", "user", 10)
        insert("events", "event", 20)
        until_rows(seen, {"user": {0, 1, 10}, "event": {0, 20}})
        assert positions(seen) == {"crm": 2, "events": 2}
    insert("crm", "user", 11)
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0, 1, 10, 11}, "event": {0, 20}})
        assert seen.log.state().generation == 1
    assert [each.reads for each in UPSTREAMS.values()] == [1, 1]
    assert UPSTREAMS["events"].followed_from[-1] == 2


def test_watermarks_increase_and_each_transaction_of_an_upstream_is_one_of_the_log(log: LogStore) -> None:
    upstream("crm", ["user"])
    upstream("events", ["event"])
    with running(log, spec("crm"), spec("events")) as seen:
        seen.until_generation(1)
        for number in range(50):
            insert("crm", "user", number * 2, 2)
            insert("events", "event", number * 3, 3)
        until_rows(seen, {"user": set(range(100)), "event": set(range(150))})
        stored = seen.log.read_after("00", 1 << 30)
    marks = [each.watermark for each in stored]
    assert marks == sorted(set(marks))
    assert sorted(each.changes for each in stored) == [2] * 52 + [3] * 50  # two reads of create-table and key index


def test_a_source_that_is_down_stops_nobody_else(log: LogStore) -> None:
    upstream("crm", ["user"], rows=1)
    upstream("events", ["event"], rows=1).is_down = True
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0}})
        assert error_code(seen, "events") == "adapter-failed"
        assert error_code(seen, "crm") is None
        insert("crm", "user", 1)
        until_rows(seen, {"user": {0, 1}})
        UPSTREAMS["events"].is_down = False
        until_rows(seen, {"user": {0, 1}, "event": {0}})
        seen.until(lambda: error_code(seen, "events") is None)
        UPSTREAMS["crm"].is_down = True
        insert("crm", "user", 2)
        insert("events", "event", 1)
        until_rows(seen, {"user": {0, 1}, "event": {0, 1}})
        UPSTREAMS["crm"].is_down = False
        until_rows(seen, {"user": {0, 1, 2}, "event": {0, 1}})
        assert seen.log.state().generation == 1


def test_the_endpoint_waits_while_no_source_can_be_read(log: LogStore) -> None:
    upstream("crm", ["user"], rows=1).is_down = True
    with running(log, spec("crm")) as seen:
        seen.until(lambda: error_code(seen, "crm") == "adapter-failed" and seen.error_code() == "adapter-failed")
        assert seen.log.state().generation == 0
        UPSTREAMS["crm"].is_down = False
        until_rows(seen, {"user": {0}})


@pytest.mark.parametrize("spill_bytes", [1 << 30, 1000])
def test_a_source_that_lost_its_position_is_read_again_alone(log: LogStore, spill_bytes: int) -> None:
    upstream("crm", ["user"], rows=300)
    upstream("events", ["event"], rows=2)
    with running(log, spec("crm"), spec("events"), spill_bytes=spill_bytes) as seen:
        until_rows(seen, {"user": set(range(300)), "event": {0, 1}})
        head = seen.log.state().head
        # A store that was restored: other rows, and positions that were used before.
        restored = MemoryStore([table("user")])
        restored.commit(Insert("user", {"id": 500 + number, "title": "t"}) for number in range(2))
        UPSTREAMS["crm"].lost = True
        UPSTREAMS["crm"].store = restored
        insert("crm", "user", 600)
        insert("crm", "user", 601)
        insert("events", "event", 2)
        until_rows(seen, {"user": {500, 501, 600, 601}, "event": {0, 1, 2}})
        insert("crm", "user", 602)
        until_rows(seen, {"user": {500, 501, 600, 601, 602}, "event": {0, 1, 2}})
        assert seen.log.state().generation == 1
        frames = b"".join(b"".join(each.chunks()) for each in seen.log.read_after(head, 1 << 30))
        assert frames.count(b'"tag":"truncate"') == 1
        assert b'"tag":"create-table"' not in frames
    assert [each.reads for each in UPSTREAMS.values()] == [2, 1]


def test_a_source_is_added_and_removed_without_a_reset(log: LogStore) -> None:
    upstream("crm", ["user"], rows=1)
    upstream("events", ["event", "click"], rows=2)
    with running(log, spec("crm")) as seen:
        until_rows(seen, {"user": {0}})
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0}, "event": {0, 1}, "click": {0, 1}})
        assert tables_of(seen, "events") == ["event", "click"]
    with running(log, spec("crm")) as seen:
        until_rows(seen, {"user": {0}})
        insert("crm", "user", 1)
        until_rows(seen, {"user": {0, 1}})
        assert positions(seen)["events"] is None
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0, 1}, "event": {0, 1}, "click": {0, 1}})
        assert seen.log.state().generation == 1
    assert UPSTREAMS["crm"].reads == 1


def test_a_name_in_two_sources_is_refused_with_the_fix(log: LogStore) -> None:
    upstream("crm", ["user"], rows=1)
    upstream("events", ["event", "User"], rows=2)
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0}})
        seen.until(lambda: error_code(seen, "events") == "name-in-two-sources")
        error = stage(seen, "events")["error"]
        assert isinstance(error, dict)
        assert 'prefix = "events_"' in error["fix"]
        assert "crm" in error["message"]
    with running(log, spec("crm"), spec("events", prefix="ev_")) as seen:
        until_rows(seen, {"user": {0}, "ev_event": {0, 1}, "ev_User": {0, 1}})
        insert("events", "User", 7)
        until_rows(seen, {"user": {0}, "ev_event": {0, 1}, "ev_User": {0, 1, 7}})


def test_another_mapping_reads_its_source_again_and_no_other(log: LogStore) -> None:
    upstream("crm", ["user"], rows=2)
    upstream("events", ["event"], rows=2)
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0, 1}, "event": {0, 1}})
    with running(log, spec("crm"), spec("events", mapping={"event": {"name": "happening"}})) as seen:
        until_rows(seen, {"user": {0, 1}, "happening": {0, 1}})
        insert("events", "event", 2)
        until_rows(seen, {"user": {0, 1}, "happening": {0, 1, 2}})
        assert seen.log.state().generation == 1
    assert [each.reads for each in UPSTREAMS.values()] == [1, 2]


def test_a_log_of_one_upstream_becomes_one_of_several_without_a_reset_and_back_with_one(log: LogStore) -> None:
    upstream("crm", ["user"], rows=2)
    upstream("events", ["event"], rows=1)
    with watched(InlineRunner(lambda: SwitchedAdapter("crm"), log), log) as seen:
        until_rows(seen, {"user": {0, 1}})
        insert("crm", "user", 2)
        until_rows(seen, {"user": {0, 1, 2}})
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0, 1, 2}, "event": {0}})
        assert seen.log.state().generation == 1
    with watched(InlineRunner(lambda: SwitchedAdapter("crm"), log), log) as seen:
        seen.until_generation(2)
        until_rows(seen, {"user": {0, 1, 2}})
        insert("crm", "user", 3)
        until_rows(seen, {"user": {0, 1, 2, 3}})


def test_a_requested_snapshot_reads_all_sources_again(log: LogStore) -> None:
    upstream("crm", ["user"], rows=2)
    upstream("events", ["event"], rows=1)
    with running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": {0, 1}, "event": {0}})
        log.requests.ask_snapshot(seen.log.state().head, "a test asks")
        seen.until_generation(2)
        until_rows(seen, {"user": {0, 1}, "event": {0}})
        insert("events", "event", 5)
        until_rows(seen, {"user": {0, 1}, "event": {0, 5}})


def test_a_shared_log_is_compacted_and_pruned_while_sources_append(log: LogStore) -> None:
    upstream("crm", ["user"], rows=20)
    upstream("events", ["event"], rows=1)
    with log.claim(), running(log, spec("crm"), spec("events")) as seen:
        until_rows(seen, {"user": set(range(20)), "event": {0}})
        insert("crm", "user", 20)
        until_rows(seen, {"user": set(range(21)), "event": {0}})
        compacted = compact_once(log, LocalLane(), 1000.0)
        assert compacted is not None
        assert compacted.registered
        log.requests.ask_prune(compacted.watermark)
        seen.until(lambda: seen.log.state().oldest == compacted.watermark)
        insert("events", "event", 1)
        until_rows(seen, {"user": set(range(21)), "event": {0, 1}})
        assert [each.watermark for each in seen.log.snapshots()][-1] == compacted.watermark
    with running(log, spec("crm"), spec("events")) as seen:
        insert("crm", "user", 21)
        until_rows(seen, {"user": set(range(22)), "event": {0, 1}})
    assert rows_in_log(log) == {"user": set(range(22)), "event": {0, 1}}
