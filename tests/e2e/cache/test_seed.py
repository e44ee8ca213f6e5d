"""The reference cache started on a seed: no initial sync, then live changes, as after a sync of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.test_seed import changesource, initial_syncs
from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def rows(file: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT id, name FROM item ORDER BY id").fetchall()


def test_the_reference_cache_starts_from_the_same_file(store: MakeStore, serving: MakeServing, tmp_path: Path) -> None:
    data = store("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO item VALUES (1, 'one')")
    endpoint = serving(data).start()
    changesource("seed", "--state", endpoint.state, "--upload", tmp_path / "seeds", "--runner", "inline")
    data.run("INSERT INTO item VALUES (2, 'after the seed')")
    with ReferenceCache(endpoint.stream_url, tmp_path) as cache:
        changesource("fetch-seed", tmp_path / "seeds", cache.replica_file, "--endpoint", endpoint.stream_url)
        assert rows(cache.replica_file) == [(1, "one")]
        cache.start()
        data.run("INSERT INTO item VALUES (3, 'live')")
        expected = [(1, "one"), (2, "after the seed"), (3, "live")]
        until(lambda: rows(cache.replica_file) == expected, "the replica to equal the upstream")
        assert initial_syncs(endpoint) == 0
        cache.stop()
        cache.start()
        data.run("DELETE FROM item WHERE id = 1")
        until(lambda: rows(cache.replica_file) == expected[1:], "the deletion after a restart")
