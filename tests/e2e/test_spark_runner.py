"""`changesource serve` on Spark before the official zero-cache; and, without any Java, on the inline runner."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.serving import Serving
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore, difference, wait_until_same

TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, doc JSON)"
READY_LINE = "Spark runs the pipeline"


def _jobs(ui: str) -> dict[str, str]:
    """Job group → status, as Spark's own page has it."""
    (application,) = _get(f"{ui}/api/v1/applications")
    return {job["jobGroup"]: job["status"] for job in _get(f"{ui}/api/v1/applications/{application['id']}/jobs")}


def _get(url: str) -> list[dict[str, str]]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: list[dict[str, str]] = json.load(answer)
        return found


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_replica_equals_the_database_through_spark_jobs_that_its_page_shows(
    tmp_path: Path, zero_cache: MakeZeroCache
) -> None:
    store = SqliteStore(tmp_path / "app.db", TABLE)
    store.insert("item", [(number, f"name {number}", '{"n": 1}') for number in range(2000)])
    with SparkServing("sqlite", {"path": str(store.path)}, tmp_path / "state") as endpoint:
        endpoint.start(seconds=SPARK_SECONDS)
        cache = zero_cache(endpoint.stream_url).start()
        assert difference(store, cache.replica) == ""

        store.run("UPDATE item SET name = 'changed' WHERE id < 10", "DELETE FROM item WHERE id > 1990")
        store.run("ALTER TABLE item ADD COLUMN extra TEXT")
        store.insert("item", [(5000, "late", "[]", "extra")])
        wait_until_same(store, cache.replica)

        line = endpoint.process.lines[endpoint.process.wait_for_line(READY_LINE) - 1]
        found = re.search(r"ui=(http://\S+)", line)
        assert found, line
        assert _jobs(found[1]) == {"changesource snapshot": "SUCCEEDED", "changesource tail": "RUNNING"}
        assert cache.exits == []
        assert endpoint.stop() == 0
        until(lambda: not endpoint.process.tree(), "every process of Spark to be gone")


def test_the_inline_runner_needs_no_java(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "app.db", TABLE)
    without_java = {"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(tmp_path)}
    options = ("--runner", "inline")
    with Serving(
        "sqlite", {"path": str(store.path)}, tmp_path / "state", options=options, env=without_java
    ) as endpoint:
        endpoint.start()
        assert endpoint.stop() == 0
