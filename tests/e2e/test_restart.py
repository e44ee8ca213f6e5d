"""Either side stopped or killed, at every stage: the other waits, and afterwards nothing is lost or doubled.

Doubled transactions cannot hide: zero-cache refuses a watermark it has, and the exits it makes are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.fixtures.serving import MakeServing, MakeStore, servings
from tests.support.fixtures.zero_cache import MakeZeroCache, zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.serving import Serving
from tests.support.peers.zero_cache import FAILED_EXIT, ZeroCache
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore, wait_until_same

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT, n INTEGER)"
LARGE = 8_000
SNAPSHOT_ROWS = 60_000
SYNCED = "finished initial-sync"
Side = Serving | ZeroCache
End = Callable[[Side], int]


def terminate(side: Side) -> int:
    return side.stop()


def kill(side: Side) -> int:
    return side.kill()


ENDS = pytest.mark.parametrize("end", [terminate, kill])
LONG_ENDS = pytest.mark.parametrize("end", [pytest.param(terminate, marks=pytest.mark.faults), kill])
"""For what takes long: the kill says more, so the end in good order waits for `make faults`."""


class Pair:
    """A store, an endpoint and a cache in step; numbers only grow, so every test writes rows of its own."""

    def __init__(self, store: SqliteStore, endpoint: Serving, cache: ZeroCache) -> None:
        self.store, self.endpoint, self.cache = store, endpoint, cache
        self.first_version = cache.replica.version()
        self._number = 0

    def write(self, count: int) -> None:
        """One transaction of this many new rows."""
        first = self._number
        self._number += count
        self.store.insert("item", [(number, f"body {number}" * 10, count) for number in range(first, first + count)])

    def write_and_wait_for_the_middle(self) -> None:
        """Commit a large transaction and return while the cache is still taking it; another, if it was too quick."""
        until(self._is_taking_a_large_one, "a transaction large enough to be interrupted")

    def _is_taking_a_large_one(self) -> bool:
        before = str(self.endpoint.status()["log"]["head"])
        self.write(LARGE)
        until(lambda: self.endpoint.status()["log"]["head"] > before, "the large transaction in the log")
        return self.cache.replica.watermark() <= before

    def check(self) -> None:
        """Both sides live and equal, also for what is written now."""
        self.write(1)
        wait_until_same(self.store, self.cache.replica)


@pytest.fixture(scope="module")
def pair(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("restart")
    store = SqliteStore(folder / "app.db", TABLE)
    with servings(folder) as make_endpoint, zero_caches(postgres, folder) as make_cache:
        endpoint = make_endpoint(store).start()
        yield Pair(store, endpoint, make_cache(endpoint.stream_url).start())


@ENDS
def test_endpoint_ended_while_idle(pair: Pair, end: End) -> None:
    pair.check()
    end(pair.endpoint)
    pair.write(3)
    pair.endpoint.start()
    pair.check()


@ENDS
def test_cache_ended_while_idle(pair: Pair, end: End) -> None:
    pair.check()
    end(pair.cache)
    pair.write(3)
    pair.cache.start()
    pair.check()


@LONG_ENDS
def test_endpoint_ended_in_mid_transaction(pair: Pair, end: End) -> None:
    pair.check()
    pair.write_and_wait_for_the_middle()
    end(pair.endpoint)
    pair.endpoint.start()
    pair.check()


@LONG_ENDS
def test_cache_ended_in_mid_transaction(pair: Pair, end: End) -> None:
    pair.check()
    pair.write_and_wait_for_the_middle()
    end(pair.cache)
    pair.cache.start()
    pair.check()


def test_pipeline_killed_alone_is_started_again_and_consumers_notice_nothing(pair: Pair) -> None:
    pair.check()
    killed = pair.endpoint.kill_pipeline()
    pair.write(5)
    pair.check()
    assert killed
    assert pair.endpoint.process.running


def test_all_these_ends_never_cost_a_sync_from_scratch(pair: Pair) -> None:
    pair.check()
    log = pair.endpoint.status()["log"]
    assert pair.cache.replica.version() == pair.first_version
    assert log["generation"] == 1
    assert all(code in (0, -9) for code in pair.cache.exits), pair.cache.exits


def _large_store(store: MakeStore) -> SqliteStore:
    made = store(TABLE)
    made.insert("item", ((number, f"body {number}" * 10, number) for number in range(SNAPSHOT_ROWS)))
    return made


def _wait_for_snapshot_stream(endpoint: Serving) -> None:
    """Until a snapshot is under way to the cache; the store is large enough that it takes a while longer."""

    def streaming() -> bool:
        return any(stream["phase"] == "snapshot" for stream in endpoint.status()["streams"])

    until(streaming, "a snapshot on its way")


@LONG_ENDS
def test_cache_ended_during_the_snapshot_starts_over_cleanly(
    end: End, store: MakeStore, serving: MakeServing, zero_cache: MakeZeroCache
) -> None:
    data = _large_store(store)
    endpoint = serving(data).start()
    cache = zero_cache(endpoint.stream_url)
    cache.launch()
    _wait_for_snapshot_stream(endpoint)
    end(cache)
    assert not any(SYNCED in line for line in cache.process.lines), (
        "the snapshot must be large enough to be interrupted"
    )
    cache.start()
    wait_until_same(data, cache.replica)


@LONG_ENDS
def test_endpoint_ended_during_the_snapshot_serves_it_again(
    end: End, store: MakeStore, serving: MakeServing, zero_cache: MakeZeroCache
) -> None:
    data = _large_store(store)
    # A snapshot is one transaction: with the usual grace the endpoint would send it to its end before it stops.
    endpoint = serving(data, grace=0.1).start()
    cache = zero_cache(endpoint.stream_url, supervised=True)
    cache.launch()
    _wait_for_snapshot_stream(endpoint)
    end(endpoint)
    endpoint.start()
    cache.wait_until_ready(run=1)
    wait_until_same(data, cache.replica)
    assert set(cache.exits) == {FAILED_EXIT}
