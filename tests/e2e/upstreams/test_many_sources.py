"""Postgres, Kafka, Delta and SQLite behind one endpoint on Spark, for the official zero-cache and client.

The replica equals all four stores, a client's query joins three of them and follows a change in each, and one source is
read again while the others stream. In the fault test every store's server and every process of the pipeline is killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.spark_serving import FEW_PARTITIONS, SPARK_SECONDS, SparkServing, kill
from tests.support.peers.zero_cache import ZeroCache
from tests.support.peers.zero_client import ZeroClient
from tests.support.waiting import until
from tests.support.workloads.four_stores import FourStores

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SOURCES = ["crm", "events", "lake", "notes"]
COLUMNS = {
    "user": {"id": "number", "name": "string"},
    "event": {"id": "string", "user_id": "number", "kind": "string"},
    "note": {"id": "number", "user_id": "number", "body": "string"},
}
RELATED = {"user": {"events": ("id", "event", "user_id"), "notes": ("id", "note", "user_id")}}


@contextmanager
def served(
    stores: FourStores, folder: Path, postgres: PostgresServer
) -> Iterator[tuple[SparkServing, ZeroCache, Path]]:
    config = stores.config(folder / "sources.toml")
    options = ("--config", str(config), *FEW_PARTITIONS)
    with (
        SparkServing("", {}, folder / "state", options=options) as endpoint,
        zero_caches(postgres, folder) as make_cache,
    ):
        endpoint.start(seconds=SPARK_SECONDS)
        assert list(endpoint.status()["sources"]) == SOURCES, "a generation starts with all sources that can be read"
        stores.allow_all()
        yield endpoint, make_cache(endpoint.stream_url).start(), config


def test_one_query_joins_the_stores_and_one_is_read_again_while_the_others_stream(
    postgres: PostgresServer, logical_postgres: PostgresServer, kafka: KafkaBroker, tmp_path: Path
) -> None:
    stores = FourStores(tmp_path, logical_postgres, kafka)
    with served(stores, tmp_path, postgres) as (endpoint, cache, config):
        stores.wait_until_same(cache.replica)
        first = cache.replica.version()
        with ZeroClient(cache.url, COLUMNS, related=RELATED) as client:
            ada = {"id": 1, "name": "Ada"}
            event, note = {"id": "e1", "user_id": 1, "kind": "login"}, {"id": 1, "user_id": 1, "body": "first"}
            client.wait_for_rows("user", [{**ada, "events": [event], "notes": [note]}])
            stores.add_event("e2", 1, "logout")
            second = {"id": "e2", "user_id": 1, "kind": "logout"}
            client.wait_for_rows("user", [{**ada, "events": [event, second], "notes": [note]}])
            stores.add_note(1, 1, "changed")
            note = {**note, "body": "changed"}
            client.wait_for_rows("user", [{**ada, "events": [event, second], "notes": [note]}])
            stores.add_user(1, "Ada Lovelace")
            client.wait_for_rows(
                "user", [{"id": 1, "name": "Ada Lovelace", "events": [event, second], "notes": [note]}]
            )
        _lose_a_position_while_others_stream(stores, endpoint, cache)
        assert cache.replica.version() == first, "consumers were reset"
        assert cache.exits == []
        _verify(config, tmp_path / "state", cache)


def _lose_a_position_while_others_stream(stores: FourStores, endpoint: SparkServing, cache: ZeroCache) -> None:
    stores.drop_slot()
    for number in range(2, 7):
        stores.write_each(number)
    stores.wait_until_same(cache.replica)
    until(lambda: endpoint.status()["sources"]["crm"]["reads"] == 2, "the second read of Postgres")
    sources = endpoint.status()["sources"]
    assert {name: sources[name]["reads"] for name in SOURCES} == {"crm": 2, "events": 1, "lake": 1, "notes": 1}
    stores.write_each(7)
    stores.wait_until_same(cache.replica)


def _verify(config: Path, state: Path, cache: ZeroCache) -> None:
    """The command compares each source with its tables in the log, and the log with the replica."""
    command = [sys.executable, "-m", "changesource_cli", "verify", "--config", str(config), "--state", str(state)]
    (elsewhere := state.parent / "elsewhere").mkdir()
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=elsewhere, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(elsewhere.iterdir()) == [], "the current directory is left alone"
    compared = json.loads(done.stdout)
    assert [next(iter(each["stages"])) for each in compared] == [f"upstream {name}" for name in SOURCES]
    assert [sorted(each["tables"])[-1] for each in compared][1:] == ["event", "forecast", "note"]


@pytest.mark.faults
def test_the_replica_equals_the_stores_whatever_is_killed(postgres: PostgresServer, tmp_path: Path) -> None:
    with PostgresServer(wal_level="logical", synchronous_commit="on") as crm, KafkaBroker() as kafka:
        stores = FourStores(tmp_path, crm, kafka)
        with served(stores, tmp_path, postgres) as (endpoint, cache, _):
            stores.wait_until_same(cache.replica)
            first, number = cache.replica.version(), 10

            def check() -> None:
                nonlocal number
                stores.write_each(number)
                stores.wait_until_same(cache.replica)
                number += 1

            for server in (crm, kafka):
                server.kill()
                # The others go on meanwhile.
                stores.add_note(1000 + number, 1, "meanwhile")
                cache.replica.wait_until(f"SELECT 1 FROM note WHERE id = {1000 + number}", seconds=180)
                server.start_again()
                check()
            for name in SOURCES:
                pid = until(partial(task_of, endpoint, name), f"the task of {name}", seconds=180)
                kill(pid)
                check()
            driver = endpoint.driver()
            assert driver is not None
            kill(driver)
            check()
            endpoint.kill()
            endpoint.start(seconds=SPARK_SECONDS)
            check()
            assert cache.replica.version() == first, "consumers were reset"


def task_of(endpoint: SparkServing, source: str) -> int:
    """The process that follows a source, 0 while none does."""
    stage = endpoint.status()["stages"].get(f"source-{source}", {})
    return int(stage.get("pid") or 0) if stage.get("state") == "tailing" else 0
