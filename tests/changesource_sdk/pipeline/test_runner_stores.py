"""The runner over a log in every store: what it does must not depend on where the log is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Column, Insert, Table
from changesource_sdk.changelog.postgres.store import PostgresLogStore
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import StaleWriter, StateError
from changesource_sdk.pipeline.inline import InlineRunner
from service_kit.backoff import Backoff
from tests.changesource_sdk.changelog.logs_under_test import postgres_store
from tests.changesource_sdk.pipeline.runner_fixtures import PATIENCE_S, Watched, running
from tests.support.peers.postgres_server import PostgresServer

ISSUE = Table("issue", [Column("id", int), Column("title", str)])


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    state = tmp_path / "state"
    made: LogStore = SqliteLogStore(state)
    if request.param == "postgres":
        made = postgres_store(request.getfixturevalue("postgres").url(), state)
    yield made
    made.close()


def store_of(rows: int) -> MemoryStore:
    store = MemoryStore([ISSUE])
    insert(store, 0, rows)
    return store


def insert(store: MemoryStore, first: int, count: int, title: str = "t") -> None:
    store.commit(Insert("issue", {"id": number, "title": title}) for number in range(first, first + count))


def inserted(payloads: list[bytes]) -> int:
    return sum(b'"tag":"insert"' in payload for payload in payloads)


def test_rows_become_a_snapshot_and_commits_the_log_across_a_restart(log: LogStore) -> None:
    store = store_of(3)
    with running(lambda: MemoryAdapter(store=store), log) as seen:
        seen.until_generation(1)
        insert(store, 10, 1)
        seen.until(lambda: inserted(seen.log_payloads()) == 1)
    insert(store, 20, 2)
    with running(lambda: MemoryAdapter(store=store), log) as seen:
        seen.until(lambda: inserted(seen.log_payloads()) == 3)
        assert seen.log.state().generation == 1
        assert inserted(seen.snapshot_payloads()) == 3


def test_a_large_transaction_leaves_no_file_that_the_log_does_not_need(log: LogStore) -> None:
    store = store_of(0)
    with running(lambda: MemoryAdapter(store=store), log, spill_bytes=1000) as seen:
        seen.until_generation(1)
        insert(store, 0, 500, "x" * 100)
        seen.until(lambda: inserted(seen.log_payloads()) == 500)
        assert seen.log.read_after("00", 1)[0].frames is None
        log.requests.ask_prune(seen.log.state().head)
        seen.until(lambda: seen.log.state().oldest == seen.log.state().head)
        seen.until(lambda: list(seen.store.layout.segments.iterdir()) == [])


def test_a_request_brings_a_new_generation(log: LogStore) -> None:
    store = store_of(1)
    with running(lambda: MemoryAdapter(store=store), log) as seen:
        seen.until_generation(1)
        log.requests.ask_snapshot(seen.log.state().head, "a consumer saw more")
        seen.until_generation(2)
        seen.until(lambda: log.requests.pending_snapshot() is None)


def test_a_runner_that_was_replaced_stops(log: LogStore) -> None:
    store = store_of(1)
    runner = InlineRunner(lambda: MemoryAdapter(store=store), log, backoff=Backoff(0.01, 0.01))
    ended: list[BaseException] = []

    def run() -> None:
        try:
            runner.run()
        except StaleWriter as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    watched = Watched(log)
    thread.start()
    watched.until_generation(1)
    newer = log.open_writer(lambda: 1)
    insert(store, 5, 1)
    thread.join(PATIENCE_S)
    newer.close()
    watched.close()
    assert len(ended) == 1


def test_only_one_pipeline_at_a_time_may_claim_a_log(log: LogStore) -> None:
    with log.claim(), pytest.raises(StateError, match="in-use"), log.claim():
        pytest.fail("two pipelines at once")
    with log.claim():
        pass


def test_a_pipeline_elsewhere_is_kept_off_a_claimed_log(postgres: PostgresServer, tmp_path: Path) -> None:
    here = postgres_store(postgres.url(), tmp_path / "here")
    there = PostgresLogStore(here.address, SqliteLogStore(tmp_path / "there").layout)
    with here.claim(), pytest.raises(StateError, match="log-in-use"), there.claim():
        pytest.fail("two pipelines at once")


def test_a_server_that_drops_every_session_costs_a_delay_and_nothing_else(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    log = postgres_store(postgres.url(), tmp_path / "state")
    store = store_of(1)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'changesource'"
    with running(lambda: MemoryAdapter(store=store), log) as seen:
        seen.until_generation(1)

        def has_inserted(count: int) -> bool:
            return inserted(seen.log_payloads()) == count

        for number in range(1, 6):
            insert(store, number, 1)
            with psycopg.connect(postgres.url(), autocommit=True) as connection:
                connection.execute(cut)
            insert(store, 100 + number, 1)
            seen.until(partial(has_inserted, 2 * number))
        seen.until(lambda: seen.error_code() is None)
        assert seen.log.state().generation == 1
        restarts = seen.stage()["restarts"]
        assert isinstance(restarts, int)
        assert restarts > 0
    log.close()
