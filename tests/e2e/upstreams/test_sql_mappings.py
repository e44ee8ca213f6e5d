"""A store seen through Spark SQL mappings, at the official zero-cache: snapshot and changes by the micro-batch lane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.spark_serving import CLUSTER, LOCAL, SPARK_SECONDS, SparkServing, kill
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore

TABLE = "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)"
MAPPING = """
[mapping.person]
name = "adult"
select = ["id"]
filter = { sql = "age >= 18" }

[mapping.person.columns]
label = { sql = "concat(upper(name), ' ', age)", type = "text" }
"""
#: What the mapping says, in the words of SQLite.
ADULTS = "SELECT id, upper(name) || ' ' || age FROM person WHERE age >= 18 ORDER BY id"


@contextmanager
def mapped(tmp_path: Path, store: SqliteStore, *options: str, master: str = LOCAL) -> Iterator[SparkServing]:
    config = tmp_path / "changesource.toml"
    config.write_text(MAPPING)
    settings, state = {"path": str(store.path)}, tmp_path / "state"
    with SparkServing(
        "sqlite", settings, state, options=("--config", str(config), *options), master=master
    ) as endpoint:
        endpoint.start(seconds=SPARK_SECONDS)
        yield endpoint


def people(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "app.db", TABLE)
    store.insert("person", [(number, f"name {number}", number % 40) for number in range(200)])
    return store


def wait_until_adults(store: SqliteStore, cache: ZeroCache) -> None:
    """Wait until the replica has the adults of the store and nothing else."""
    expected = store.query(ADULTS)
    replica = cache.replica
    until(
        lambda: replica.try_query("SELECT id, label FROM adult ORDER BY id") == expected,
        "the adults",
        seconds=SPARK_SECONDS,
    )


def grow_up(store: SqliteStore) -> None:
    """Rows that enter the filter, leave it, change inside it, come and go."""
    store.run("UPDATE person SET age = age + 10 WHERE id < 50")
    store.run("UPDATE person SET age = 3 WHERE id BETWEEN 60 AND 70", "UPDATE person SET name = 'new' WHERE id > 190")
    store.insert("person", [(1000, "late", 70), (1001, "young", 1)])
    store.run("DELETE FROM person WHERE id BETWEEN 100 AND 120")


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_replica_holds_what_the_mapping_says_and_the_lane_stops_without_a_trace(
    tmp_path: Path, zero_cache: MakeZeroCache
) -> None:
    store = people(tmp_path)
    with mapped(tmp_path, store) as endpoint:
        cache = zero_cache(endpoint.stream_url).start()
        wait_until_adults(store, cache)
        grow_up(store)
        wait_until_adults(store, cache)
        assert endpoint.stage()["lane"] == "micro-batch"
        assert cache.exits == []
        store.run("UPDATE person SET age = age + 1")
        assert endpoint.stop() == 0
    said = (tmp_path / "state" / "spark.log").read_text()
    assert "Exception" not in said
    assert " ERROR " not in said


@pytest.mark.e2e
@pytest.mark.faults
@pytest.mark.timeout(900)
def test_on_a_cluster_with_its_log_in_postgres_a_driver_killed_before_its_checkpoint_doubles_nothing(
    tmp_path: Path, zero_cache: MakeZeroCache, postgres: PostgresServer
) -> None:
    store = people(tmp_path)
    with mapped(tmp_path, store, "--log", postgres.create_database("log"), master=CLUSTER) as endpoint:
        cache = zero_cache(endpoint.stream_url).start()
        version = cache.replica.version()
        grow_up(store)
        before = endpoint.status()["log"]["head"]
        until(lambda: endpoint.status()["log"]["head"] > before, "the first batch in the log", seconds=SPARK_SECONDS)
        # The log has it, and Spark is still busy with its own bookkeeping.
        kill(endpoint.driver() or 0)
        store.run("UPDATE person SET name = 'after' WHERE id = 1000")
        wait_until_adults(store, cache)
        until(lambda: endpoint.stage().get("lane") == "micro-batch", "the lane to be back", seconds=SPARK_SECONDS)
        log = endpoint.status()["log"]
        assert (log["generation"], cache.replica.version()) == (1, version), "nothing was synced from scratch"
        assert cache.exits == []
        assert endpoint.stop() == 0
