"""Two endpoints over one log in Postgres serve two caches; when one is killed, its consumer moves to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from changesource_sdk.testing.faults import Link
from tests.support.fixtures.serving import MakeStore
from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.serving import Serving
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore, wait_until_same

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MakeRole = Callable[[str, str, SqliteStore], Serving]


@pytest.fixture
def role(postgres: PostgresServer, tmp_path: Path) -> Iterator[MakeRole]:
    """Processes of one change source, each with a state directory of its own: only log and spool are shared."""
    log = ("--log", postgres.create_database("log"), "--spool", str(tmp_path / "spool"))
    with ExitStack() as stack:

        def make(name: str, role: str, store: SqliteStore) -> Serving:
            options = (*log, "--role", role, "--permissions", "allow-all")
            made = Serving("sqlite", {"path": str(store.path)}, tmp_path / name, options=options)
            stack.callback(lambda: print(f"--- {name} ---\n{made.process.tail(60)}"))
            return stack.enter_context(made)

        yield make


def insert(store: SqliteStore, first: int, count: int) -> None:
    store.insert("item", [(number, f"body {number}") for number in range(first, first + count)])


def test_a_killed_endpoint_s_consumer_moves_to_the_other_and_misses_nothing(
    role: MakeRole, store: MakeStore, zero_cache: MakeZeroCache
) -> None:
    data = store("CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT)")
    insert(data, 0, 500)
    role("pipeline", "pipeline", data).launch()
    first, second = role("first", "endpoint", data).start(), role("second", "endpoint", data).start()
    with Link("127.0.0.1", first.port) as proxy:
        moving = zero_cache(f"ws://127.0.0.1:{proxy.port}/changes/v0/stream").start()
        staying = zero_cache(second.stream_url, app_id="other").start()
        insert(data, 1000, 100)
        wait_until_same(data, moving.replica)
        wait_until_same(data, staying.replica)
        assert [stream["app"] for stream in first.status()["streams"]] == ["zero"]

        version = moving.replica.version()
        proxy.target = ("127.0.0.1", second.port)
        first.kill()
        insert(data, 2000, 100)
        until(lambda: second.port in proxy.opened, "the consumer at the other endpoint")
        insert(data, 3000, 100)
        wait_until_same(data, moving.replica)
        wait_until_same(data, staying.replica)

        assert moving.replica.version() == version, "no sync from scratch"
        assert moving.exits == staying.exits == []
        status = second.status()
        assert {stream["app"] for stream in status["streams"]} == {"zero", "other"}
        assert {known["app"] for known in status["subscribers"]} == {"zero", "other"}
        assert status["log"]["generation"] == 1


def test_a_killed_pipeline_goes_on_where_its_log_ends_while_the_endpoint_serves(
    role: MakeRole, store: MakeStore, zero_cache: MakeZeroCache
) -> None:
    data = store("CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT)")
    insert(data, 0, 50)
    pipeline = role("pipeline", "pipeline", data)
    pipeline.launch()
    endpoint = role("endpoint", "endpoint", data).start()
    cache = zero_cache(endpoint.stream_url, supervised=True).start()
    wait_until_same(data, cache.replica)
    pipeline.kill()
    insert(data, 100, 50)
    pipeline.launch()
    wait_until_same(data, cache.replica)
    assert endpoint.status()["log"]["generation"] == 1
    assert cache.exits == []
