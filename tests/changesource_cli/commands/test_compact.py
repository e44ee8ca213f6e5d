"""`changesource compact`: with a pipeline that takes the snapshot, and without one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from changesource_cli.app import app
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.serving import Serving
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore as Database

TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)"


def compact(state: Path, *options: str) -> dict[str, Any]:
    command = ["compact", "--state", str(state), "--runner", "inline", "--json", *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    done: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])["compacted"]
    return done


def served(tmp_path: Path) -> tuple[Database, Serving]:
    store = Database(tmp_path / "app.db", TABLE)
    store.insert("item", [(number, "old") for number in range(10)])
    return store, Serving("sqlite", {"path": str(store.path)}, tmp_path / "state")


def follow(store: Database, endpoint: Serving, transactions: int) -> None:
    def has_logged(count: int) -> bool:
        return bool(endpoint.status()["log"]["transactions"] == count)

    before = int(endpoint.status()["log"]["transactions"])
    for number in range(transactions):
        store.insert("item", [(1000 + before + number, "new")])
        until(partial(has_logged, before + number + 1), "the change in the log")


def inserted(endpoint: Serving) -> set[int]:
    """The rows of the snapshot that a newcomer gets."""
    messages: list[Any] = []
    with RawConsumer(endpoint.stream_url, keep=True) as consumer:
        while "commit" not in {message[0] for message in messages}:
            messages += consumer.messages()
    changes = [message[1] for message in messages if message[0] == "data" and message[1]["tag"] == "insert"]
    return {change["new"]["id"] for change in changes if change["relation"]["name"] == "item"}


def test_a_log_without_a_pipeline_is_compacted_and_forgotten(tmp_path: Path) -> None:
    store, serving = served(tmp_path)
    with serving as endpoint:
        endpoint.start()
        follow(store, endpoint, 3)
        assert endpoint.stop() == 0
    first = compact(tmp_path / "state")
    assert (first["registered"], first["forgotten"]) == (True, 3)
    assert compact(tmp_path / "state") is None, "nothing came after it"
    with serving as endpoint:
        endpoint.start()
        log = endpoint.status()["log"]
        assert (log["snapshot"], log["generation"]) == (first["watermark"], 1)
        assert endpoint.status()["stages"]["compaction"]["verdict"] == "ok"
        assert inserted(endpoint) == {*range(10), 1000, 1001, 1002}


def test_a_pipeline_that_runs_takes_the_snapshot_and_goes_on(tmp_path: Path) -> None:
    store, serving = served(tmp_path)
    with serving as endpoint:
        endpoint.start()
        follow(store, endpoint, 3)
        done = compact(tmp_path / "state")
        assert (done["registered"], done["forgotten"]) == (True, 0)
        assert endpoint.status()["log"]["snapshot"] == done["watermark"]
        stage = endpoint.status()["stages"]["compaction"]
        assert (stage["state"], stage["verdict"], stage["done"]) == ("idle", "ok", stage["total"])
        assert stage["total"] > 0
        follow(store, endpoint, 1)
        assert inserted(endpoint) == {*range(10), 1000, 1001, 1002, 1003}, "the snapshot and what came after it"


def test_one_compacts_at_a_time(tmp_path: Path) -> None:
    store = SqliteLogStore(tmp_path)
    with store.compacting():
        result = CliRunner().invoke(app, ["compact", "--state", str(tmp_path), "--runner", "inline"])
    assert result.exit_code == 4
    assert "compaction-running" in result.output


def test_an_empty_log_has_nothing_to_compact(tmp_path: Path) -> None:
    assert compact(tmp_path) is None
