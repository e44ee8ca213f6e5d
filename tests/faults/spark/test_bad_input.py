"""What cannot work on Spark is said at once, with the fix, and what the log holds already is served all the same."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.serving import Serving
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore

TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT)"
USAGE = 2
MEGABYTE = 1 << 20


@contextmanager
def _spark(store: SqliteStore, state: Path, **more: object) -> Iterator[SparkServing]:
    with SparkServing("sqlite", {"path": str(store.path)}, state, **more) as endpoint:  # type: ignore[arg-type]
        yield endpoint


def _java(home: Path, version: str) -> Path:
    """A Java that only knows its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    made = SqliteStore(tmp_path / "app.db", TABLE)
    made.insert("item", [(1, "one"), (2, "two")])
    return made


@pytest.mark.parametrize("case", ["java-unusable", "java-too-old", "master-unreachable", "master-unknown"])
def test_a_spark_that_cannot_start_is_refused_with_code_place_and_fix(
    case: str, store: SqliteStore, tmp_path: Path
) -> None:
    environment, master, named = {
        "java-unusable": ({"JAVA_HOME": str(tmp_path / "nowhere")}, "local[2]", "JAVA_HOME"),
        "java-too-old": ({"JAVA_HOME": str(_java(tmp_path / "old", "1.8.0_402"))}, "local[2]", "Java 8"),
        "master-unreachable": ({}, f"spark://127.0.0.1:{free_port()}", "--master"),
        "master-unknown": ({}, "sparc://host:7077", "--master"),
    }[case]
    with _spark(store, tmp_path / "state", master=master, env=environment) as endpoint:
        assert endpoint.launch().wait() == USAGE
        said = endpoint.process.tail()
    assert f"error[{case}]" in said
    assert named in said
    assert "fix:" in said
    assert "Traceback" not in said


def test_the_retained_log_is_served_while_java_is_missing(store: SqliteStore, tmp_path: Path) -> None:
    with Serving("sqlite", {"path": str(store.path)}, tmp_path / "state") as before:
        before.start()
        before.stop()
    with _spark(store, tmp_path / "state", env={"JAVA_HOME": str(tmp_path / "nowhere")}) as endpoint:
        endpoint.launch()
        until(lambda: endpoint.get("/statusz")[0] and endpoint.status()["pipeline"]["starts"] >= 2, "another try")
        assert endpoint.stage()["error"]["code"] == "java-unusable"
        assert "error[java-unusable]" in endpoint.process.tail()
        with RawConsumer(endpoint.stream_url) as consumer:
            assert consumer.receive_commits(1).frames > 2


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_disk_that_fills_up_under_a_task_is_reported_and_nothing_is_lost(store: SqliteStore, tmp_path: Path) -> None:
    with _spark(store, tmp_path / "state") as endpoint:
        endpoint.start(seconds=SPARK_SECONDS)
        with RawConsumer(endpoint.stream_url) as consumer:
            version = consumer.receive_commits(1).watermark
        task = until(endpoint.task, "the resident task", seconds=SPARK_SECONDS)
        assert task is not None
        resource.prlimit(task, resource.RLIMIT_FSIZE, (2 * MEGABYTE, resource.RLIM_INFINITY))
        for number in range(1, 41):
            store.insert("item", [(number * 100 + row, "x" * 1000) for row in range(100)])
        # SQLite tells a file that may not grow from a full disk by another message; both are told and overcome alike.
        reported = until(lambda: endpoint.stage().get("error"), "the report", seconds=60)
        assert reported is not None
        assert reported["code"] in ("disk-full", "log-failed")
        assert "disk" in reported["fix"]
        assert endpoint.ready(), "what is already in the log is still served"
        resource.prlimit(task, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.insert("item", [(1_000_000, "last")])
        with RawConsumer(endpoint.stream_url, last_watermark=version, keep=True) as consumer:
            seen: list[int] = []
            while 1_000_000 not in seen:
                seen += [message[1]["new"]["id"] for message in consumer.messages() if message[0] == "data"]
        rows = sqlite3.connect(store.path).execute("SELECT id FROM item WHERE id > 2 ORDER BY id")
        assert seen == [number for (number,) in rows]
