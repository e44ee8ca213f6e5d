"""Bad values in a running pipeline, with a log in every kind of store: stop and skip, dead letters, null."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Column, Delete, Insert, Row, Table, Update
from changesource_sdk.changelog.dead_letters import Skip
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.endpoint.log_status import status_of_log
from changesource_sdk.pipeline.compaction.job import compact
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.inline import InlineRunner
from protocol.codec import decode_changes
from protocol.fold.rows import FoldedTables
from protocol.framing import frame, unframe
from service_kit.backoff import Backoff
from tests.changesource_sdk.changelog.logs_under_test import postgres_store
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, watched

ISSUE = Table("issue", [Column("id", int), Column("n", int)])
BAD = "five"


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    made: LogStore = SqliteLogStore(tmp_path)
    if request.param == "postgres":
        made = postgres_store(request.getfixturevalue("postgres").url(), tmp_path)
    yield made
    made.close()


def row(key: int, n: object = 1) -> Row:
    return {"id": key, "n": n}


def a_store(*rows: Row) -> MemoryStore:
    store = MemoryStore([ISSUE])
    store.commit(Insert("issue", each) for each in rows)
    return store


@contextmanager
def pipeline(store: MemoryStore, log: LogStore, policy: str, last_delay_s: float = 0.05) -> Iterator[Watched]:
    backoff = Backoff(first_s=0.01, last_s=last_delay_s)
    runner = InlineRunner(lambda: MemoryAdapter(store=store), log, backoff=backoff, on_bad_value=policy)
    with watched(runner, log) as seen:
        yield seen


def consumer_rows(seen: Watched) -> dict[object, object]:
    """What a consumer has that starts now: the snapshot and the log after it."""
    replica = FoldedTables()
    for payload in (*seen.snapshot_payloads(), *seen.log_payloads()):
        if payload.startswith(b'["data"'):
            replica.apply(decode_changes(frame(payload)))
    return {key[0]: each["n"] for key, each in replica.table("issue").items()}


def rows_from_newest_snapshot(seen: Watched) -> dict[object, object]:
    """What a consumer has that starts now with the newest of several snapshots."""
    replica, record = FoldedTables(), seen.log.snapshots()[-1]
    manifest = snapshots.read_manifest(record.directory)
    chunks = list(snapshots.blocks(record.directory, manifest))
    chunks += [chunk for item in seen.log.read_after(record.watermark, 1 << 30) for chunk in item.chunks()]
    for payload in (payload for chunk in chunks for payload in unframe(chunk)):
        if payload.startswith(b'["data"'):
            replica.apply(decode_changes(frame(payload)))
    return {key[0]: each["n"] for key, each in replica.table("issue").items()}


def letters(seen: Watched) -> dict[str, str]:
    return {letter.key: letter.outcome for letter in seen.log.kept_aside().letters}


def test_a_bad_row_stops_the_stream_until_it_is_skipped(log: LogStore) -> None:
    store = a_store(row(1))
    # So long a delay that only the request itself can wake the pipeline in time.
    with pipeline(store, log, "stop", last_delay_s=3600.0) as seen:
        seen.until_generation(1)
        store.commit([Update("issue", row(1, BAD)), Insert("issue", row(2))])
        store.commit([Insert("issue", row(3))])
        seen.until(lambda: seen.error_code() == "value-does-not-fit")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert (error["table"], error["key"], error["position"]) == ("issue", "[1]", "2")
        log.requests.ask_skip(Skip("2", "issue", "[1]", "id=1", "ops@host", 1.0, "known to be wrong"))
        seen.until_position(3)
        assert consumer_rows(seen) == {2: 1, 3: 1}
        assert letters(seen) == {"[1]": "left out"}
        seen.until(lambda: log.requests.pending_skips() == [])
        (skip,) = seen.log.kept_aside().skips
        assert (skip.by, skip.reason, skip.watermark > "00") == ("ops@host", "known to be wrong", True)
        store.commit([Update("issue", row(1, 7))])
        seen.until_position(4)
        assert consumer_rows(seen) == {1: 7, 2: 1, 3: 1}
        assert letters(seen) == {}
        assert len(seen.log.kept_aside().skips) == 1


def test_a_skipped_transaction_lets_the_next_one_through(log: LogStore) -> None:
    store = a_store(row(1), row(2))
    with pipeline(store, log, "stop") as seen:
        seen.until_generation(1)
        store.commit([Update("issue", row(1, 5)), Delete("issue", {"id": 2}), Insert("issue", row(3, BAD))])
        seen.until(lambda: seen.error_code() == "value-does-not-fit")
        log.requests.ask_skip(Skip("2", "", "", "", "ops@host", 1.0, "an import"))
        store.commit([Insert("issue", row(4))])
        seen.until_position(3)
        assert consumer_rows(seen) == {4: 1}
        assert letters(seen) == {"[1]": "left out", "[3]": "left out"}


def test_bad_rows_of_a_snapshot_are_left_out_and_come_back_with_their_next_change(log: LogStore) -> None:
    store = a_store(row(1), row(2, BAD), row(3, BAD), row(4))
    with pipeline(store, log, "dead-letter") as seen:
        seen.until_generation(1)
        assert consumer_rows(seen) == {1: 1, 4: 1}
        assert letters(seen) == {"[2]": "left out", "[3]": "left out"}
        store.commit([Update("issue", row(2, 6))])
        seen.until_position(2)
    store.commit([Delete("issue", {"id": 3}), Update("issue", row(1, BAD))])
    with pipeline(store, log, "dead-letter") as seen:
        seen.until_position(3)
        assert consumer_rows(seen) == {2: 6, 4: 1}
        assert letters(seen) == {"[1]": "left out"}
        log.requests.ask_snapshot(seen.log.state().head, "a consumer saw more")
        seen.until_generation(2)
        assert letters(seen) == {"[1]": "left out"}


def test_compaction_keeps_the_letters_and_the_rows(log: LogStore) -> None:
    store = a_store(row(1), row(2, BAD), row(3), row(4), row(5))
    with pipeline(store, log, "dead-letter") as seen:
        seen.until_generation(1)
        store.commit([Update("issue", row(1, BAD)), Delete("issue", {"id": 4})])
        store.commit([Update("issue", row(3, BAD))])
        store.commit([Update("issue", row(3, 8)), Insert("issue", row(6, BAD))])
        seen.until_position(4)
        before, expected = letters(seen), {3: 8, 5: 1}
        assert (consumer_rows(seen), set(before)) == (expected, {"[1]", "[2]", "[6]"})
        compact(log, LocalLane(), lambda: 2.0)
        seen.until(lambda: len(seen.log.snapshots()) == 2, "the compacted snapshot")
        assert rows_from_newest_snapshot(seen) == expected
        assert letters(seen) == before
        # Rows that were left out before the compaction come back after it, in both ways.
        store.commit([Update("issue", row(1, 9)), Delete("issue", {"id": 2})])
        seen.until_position(5)
        assert rows_from_newest_snapshot(seen) == {**expected, 1: 9}
        assert letters(seen) == {"[6]": "left out"}
    with pipeline(store, log, "dead-letter") as seen:
        store.commit([Update("issue", row(6, 6))])
        seen.until_position(6)
        assert (rows_from_newest_snapshot(seen), letters(seen)) == ({**expected, 1: 9, 6: 6}, {})


def test_a_bad_row_of_a_snapshot_can_be_skipped(log: LogStore) -> None:
    store = a_store(row(1), row(2, BAD), row(3, BAD))
    with pipeline(store, log, "stop") as seen:
        for key in ("[2]", "[3]"):
            seen.until(lambda key=key: key in str(seen.stage().get("error")))  # type: ignore[misc]
            log.requests.ask_skip(Skip("", "issue", key, f"id={key}", "ops@host", 1.0, "later"))
        seen.until_generation(1)
        assert consumer_rows(seen) == {1: 1}
        assert {letter.by for letter in seen.log.kept_aside().letters} == {"ops@host"}
        assert len(seen.log.kept_aside().skips) == 2
        seen.until(lambda: log.requests.pending_skips() == [])


def test_null_keeps_the_row(log: LogStore) -> None:
    store = a_store(row(1, BAD))
    with pipeline(store, log, "null") as seen:
        seen.until_generation(1)
        store.commit([Insert("issue", row(2, BAD))])
        seen.until_position(2)
        assert consumer_rows(seen) == {1: None, 2: None}
        assert letters(seen) == {"[1]": "null", "[2]": "null"}


def test_a_request_about_a_transaction_that_is_in_the_log_is_withdrawn(log: LogStore) -> None:
    store = a_store(row(1))
    with pipeline(store, log, "stop") as seen:
        seen.until_generation(1)
        store.commit([Insert("issue", row(2))])
        seen.until_position(2)
    log.requests.ask_skip(Skip("2", "issue", "[2]", "id=2", "ops@host", 1.0, "too late"))
    with pipeline(store, log, "stop") as seen:
        seen.until(lambda: log.requests.pending_skips() == [])
        assert consumer_rows(seen) == {1: 1, 2: 1}


def test_the_status_has_the_letters_and_counts_them(log: LogStore) -> None:
    store = a_store(row(1, BAD), row(2, BAD))
    with pipeline(store, log, "dead-letter") as seen:
        seen.until_generation(1)
    document = status_of_log(log)
    aside = document["deadLetters"]
    assert isinstance(aside, dict)
    assert (aside["total"], aside["counts"]) == (2, [{"table": "issue", "outcome": "left out", "count": 2}])
    assert {each["row"] for each in aside["newest"]} == {"id=1", "id=2"}


@pytest.mark.parametrize("policy", ["stop", "dead-letter"])
def test_a_filtered_out_transaction_sends_nothing(log: LogStore, policy: str) -> None:
    store = a_store(row(1))
    with pipeline(store, log, policy) as seen:
        seen.until_generation(1)
        store.commit([])
        seen.until_position(2)
        assert seen.log_payloads() == []
        store.commit([Insert("issue", row(2))])
        seen.until_position(3)
        assert seen.log.state().transactions == 1
