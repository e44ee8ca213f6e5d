"""The log is compacted and forgotten under two official caches: neither is reset, and the store is not read again."""

from __future__ import annotations

import pytest

from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.serving import Serving
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import difference, wait_until_same

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


LIVE = (
    tuple(f"INSERT INTO item VALUES ({1000 + number}, 'live {number}', {number})" for number in range(400)),
    ("ALTER TABLE item ADD COLUMN state TEXT DEFAULT 'open'",),
    tuple(f"UPDATE item SET state = 'done', n = -1 WHERE id = {number * 7}" for number in range(10)),
    tuple(f"DELETE FROM item WHERE id = {number * 7 + 1}" for number in range(10)),
    ("UPDATE item SET id = id + 5000 WHERE id BETWEEN 500 AND 520",),
    ("ALTER TABLE item RENAME COLUMN n TO number", "ALTER TABLE other RENAME TO another"),
)
"""Rows that come, change, move and go, and a schema that changes with them; each step is seen before the next."""


def compacted_and_pruned(endpoint: Serving, first: str) -> bool:
    log = endpoint.status()["log"]
    return bool(log["snapshot"] > first and log["oldest"] >= log["snapshot"])


@pytest.mark.parametrize("runner", ["inline", "spark"])
def test_a_compacted_log_serves_old_and_new_caches(
    store: MakeStore,
    serving: MakeServing,
    zero_cache: MakeZeroCache,
    monkeypatch: pytest.MonkeyPatch,
    runner: str,
) -> None:
    monkeypatch.setenv("CHANGESOURCE_COMPACT_AFTER", f"{len(LIVE)}tx")
    monkeypatch.setenv("CHANGESOURCE_PRUNE_INTERVAL", "0.5")
    data = store(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, n INTEGER)",
        "CREATE TABLE other (id INTEGER PRIMARY KEY, v REAL)",
        "CREATE TABLE still (id INTEGER PRIMARY KEY)",
    )
    data.insert("item", [(number, f"name {number}", number) for number in range(1000)])
    data.insert("other", [(number, number / 2) for number in range(10)])
    data.insert("still", [(1,), (2,)])
    endpoint = serving(data, runner=runner).start()
    first = zero_cache(endpoint.stream_url).start()
    began_with = first.replica.version()
    for statements in LIVE:
        data.run(*statements)
        wait_until_same(data, first.replica)
    until(lambda: compacted_and_pruned(endpoint, began_with), "a compacted log", seconds=120)

    away = data.path.rename(data.path.with_suffix(".away"))
    second = zero_cache(endpoint.stream_url, app_id="other").start()
    assert not data.path.exists()
    away.rename(data.path)
    wait_until_same(data, second.replica)
    assert second.replica.version() > began_with

    first.stop()
    data.insert("item", [(9000, "while away", 1, "open")])
    first.start()
    wait_until_same(data, first.replica)
    wait_until_same(data, second.replica)
    assert difference(data, second.replica) == ""
    assert first.replica.version() == began_with, "the first cache was not reset"
    assert endpoint.status()["log"]["generation"] == 1
