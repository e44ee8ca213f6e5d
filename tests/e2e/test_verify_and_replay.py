"""`verify` and `replay` over a real endpoint: the official replica file, ours, the store, and the past served again."""

from __future__ import annotations

import json
import shlex
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from changesource_cli.app import app
from changesource_sdk.changelog.sqlite.store import SqliteLogStore as LogStore
from changesource_sdk.verifying.log_side import log_side, schema_at_head
from changesource_sdk.verifying.replica_side import replica_side
from tests.docs.fences import block, ran
from tests.support.child_process import ChildProcess
from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.serving import Serving
from tests.support.tools import REPOSITORY
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, open BOOLEAN, note JSON)"
SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class World:
    """A store that was written to, its log, and the watermark of each transaction after the snapshot."""

    store: SqliteStore
    endpoint: Serving
    watermarks: list[str]

    @property
    def log(self) -> LogStore:
        return LogStore(self.endpoint.state)

    def verify(self, *options: str) -> Result:
        return CliRunner().invoke(app, ["verify", "--state", str(self.endpoint.state), "--json", *options])

    def agrees(self, *options: str) -> dict[str, Any]:
        """The only comparison, which must find no difference."""
        result = self.verify(*options)
        assert result.exit_code == 0, result.output
        (comparison,) = json.loads(result.stdout)
        assert comparison["same"]
        found: dict[str, Any] = comparison
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("verify")
    store = SqliteStore(folder / "app.db", TABLE)
    store.insert("item", [(number, f"old {number}", number % 2, '{"a": [1, true]}') for number in range(20)])
    options = ("--permissions", "allow-all")
    with Serving("sqlite", {"path": str(store.path)}, folder / "state", options=options) as endpoint:
        endpoint.start()
        watermarks = []

        def has_logged(count: int) -> bool:
            return bool(endpoint.status()["log"]["transactions"] == count)

        for number in range(6):
            store.run(
                f"UPDATE item SET name = 'new {number}' WHERE id = {number}",
                f"DELETE FROM item WHERE id = {10 + number}",
                f"INSERT INTO item VALUES ({100 + number}, NULL, 1, '[]')",
            )
            until(partial(has_logged, number + 1), "the change in the log")
            watermarks.append(str(endpoint.status()["log"]["head"]))
        yield World(store, endpoint, watermarks)


@pytest.fixture(scope="module")
def our_cache(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceCache]:
    """A cache that has everything and is stopped."""
    with ReferenceCache(world.endpoint.stream_url, tmp_path_factory.mktemp("ours")) as cache:
        cache.start()
        _wait_for(cache.replica_file, world.watermarks[-1])
        cache.stop()
        yield cache


def _wait_for(replica: Path, watermark: str) -> None:
    def reached() -> bool:
        with sqlite3.connect(f"{replica.as_uri()}?mode=ro", uri=True) as db:
            return bool(db.execute('SELECT version FROM "_cache.state"').fetchone()[0] >= watermark)

    until(reached, f"the replica at {watermark}", seconds=SECONDS)


def test_our_replica_is_compared_and_a_damaged_one_told_by_key(world: World, our_cache: ReferenceCache) -> None:
    path = str(our_cache.replica_file)
    world.agrees("--replica", path)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM item WHERE id = 100")
        db.execute("UPDATE item SET name = 'wrong' WHERE id = 3")
    db.close()
    try:
        result = world.verify("--replica", path)
        assert result.exit_code == 1
        (comparison,) = json.loads(result.stdout)
        assert comparison["tables"]["item"]["differences"] == [
            {"table": "item", "key": [100], "only": "log"},
            {"table": "item", "key": [3], "column": "name", "expected": "new 3", "found": "wrong"},
        ]
        told = CliRunner().invoke(app, ["verify", "--state", str(world.endpoint.state), "--replica", path])
        assert "item 3: name is 'new 3' in the log, 'wrong' in the replica" in told.stdout
        assert "item 100: only in the log" in told.stdout
    finally:
        with sqlite3.connect(path) as db:
            db.execute("INSERT INTO item (id, open, note, _0_version) VALUES (100, 1, '[]', '00')")
            db.execute("UPDATE item SET name = 'new 3' WHERE id = 3")
        db.close()


def test_the_store_is_compared_with_the_log(world: World) -> None:
    options = ("sqlite", "--set", f"path={world.store.path}")
    agreed = world.agrees(*options)
    assert agreed["tables"]["item"]["rows"] == {"upstream": 20, "log": 20}


def test_a_store_that_the_log_did_not_follow_is_told_by_key(world: World, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path / "other.db", TABLE)
    other.insert("item", [(0, "new 0", 0, '{"a": [1, true]}')])
    result = world.verify("sqlite", "--set", f"path={other.path}")
    assert result.exit_code == 1
    (comparison,) = json.loads(result.stdout)
    told = comparison["tables"]["item"]["differences"]
    assert len(told) == 19
    assert all(difference["only"] == "log" for difference in told)


def test_without_anything_to_compare_the_digests_of_the_log_are_told(world: World) -> None:
    agreed = world.agrees()
    assert agreed["stages"] == {"log": world.watermarks[-1]}
    assert len(agreed["tables"]["item"]["digests"]["log"]) == 16


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["verify", "--replica", "nowhere.db"], 4, "no-replica"),
        (["verify", "--replica", "{store}"], 4, "no-replica"),
        (["verify", "--state", "nowhere"], 4, "no-state"),
        (["replay", "--from", "00"], 4, "too-old"),
        (["replay", "--to", "zzz"], 4, "unknown-watermark"),
    ],
)
def test_what_cannot_be_done_is_told_with_its_code(world: World, options: list[str], code: int, said: str) -> None:
    given = [each.replace("{store}", str(world.store.path)) for each in options]
    state = [] if "--state" in given else ["--state", str(world.endpoint.state)]
    result = CliRunner().invoke(app, [*given, *state, "--json"])
    assert (result.exit_code, said in result.stderr) == (code, True), result.output


def typed(command: str, places: dict[str, str]) -> list[str]:
    """The words after `changesource` of a command the page prints, with this machine's places."""
    for printed, here in places.items():
        assert printed in command
        command = command.replace(printed, here)
    return shlex.split(command)[1:]


def test_the_page_compares_all_stages_at_once(world: World, our_cache: ReferenceCache) -> None:
    places = {
        "app.db": str(world.store.path),
        "./changesource-state": str(world.endpoint.state),
        "/var/zero/replica.db": str(our_cache.replica_file),
    }
    printed = block("docs/how-to/verify-and-replay.md", "changesource verify")
    result = CliRunner().invoke(app, typed(printed, places))
    assert result.exit_code == 0, result.output
    ran(printed)
    assert result.stdout.count(": the same") == 2


def test_inspect_shows_what_store_log_and_replica_hold(world: World, our_cache: ReferenceCache) -> None:
    stages = ["--adapter", "sqlite", "--set", f"path={world.store.path}", "--replica", str(our_cache.replica_file)]
    result = CliRunner().invoke(app, ["inspect", str(world.endpoint.state), *stages, "--json"])
    assert result.exit_code == 0, result.output
    upstream, log, replica = json.loads(result.stdout)["holds"]
    assert [each["stage"] for each in (upstream, log, replica)] == ["upstream", "log", "replica"]
    assert log["watermark"] == world.watermarks[-1]
    assert replica["watermark"].startswith(f"{world.watermarks[-1]}."), "an initial sync at the head, and nothing since"
    assert upstream["tables"]["item"] == log["tables"]["item"] == replica["tables"]["item"]
    assert log["tables"]["item"]["rows"] == 20
    places = {"./changesource-state": str(world.endpoint.state), "app.db": str(world.store.path)}
    places |= {"/var/zero/replica.db": str(our_cache.replica_file)}
    printed = block("docs/how-to/verify-and-replay.md", "changesource inspect")
    told = CliRunner().invoke(app, typed(printed, places))
    assert told.exit_code == 0, told.output
    ran(printed)
    assert told.stdout.count(log["tables"]["item"]["digest"]) == 3


def replay(world: World, start: str, end: str) -> ChildProcess:
    """The page's command, between two watermarks of this log."""
    places = {"./changesource-state": str(world.endpoint.state), "127.0.0.1:4811": "127.0.0.1:0"}
    places |= {"9ho7o8emv2m": start, "9ho7ophp4rw": end}
    printed = block("docs/how-to/verify-and-replay.md", "changesource replay")
    words = typed(printed, places)
    command = [sys.executable, "-m", "changesource_cli", *words, "--permissions", "allow-all", "--json"]
    process = ChildProcess(command, env={"PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY)
    ran(printed)
    return process


def said(process: ChildProcess, event: str) -> dict[str, Any]:
    """The line with an event, once it is there."""
    number = process.wait_for_line(f'"event": "{event}"', seconds=SECONDS)
    found: dict[str, Any] = json.loads(process.lines[number - 1])
    return found


@pytest.mark.parametrize(("start", "end", "opened"), [(2, 4, 2), (0, 5, 5)])
def test_a_fresh_cache_goes_through_the_past_again(
    world: World, tmp_path: Path, start: int, end: int, opened: int
) -> None:
    """It ends with the rows of that moment, which are not the newest ones, and the log stays as it was."""
    with ExitStack() as stack:
        process = replay(world, world.watermarks[start], world.watermarks[end])
        stack.callback(lambda: process.running and process.kill())
        listening = said(process, "listening")
        assert (listening["from"], listening["to"]) == (world.watermarks[start], world.watermarks[end])
        cache = stack.enter_context(ReferenceCache(listening["url"], tmp_path)).start()
        assert said(process, "done")["transactions"] == opened
        assert process.wait(SECONDS) == 0
        _wait_for(cache.replica_file, world.watermarks[end])
        cache.stop()
    schema = schema_at_head(world.log)
    past = replica_side(cache.replica_file, schema)
    assert past.watermark == world.watermarks[end]
    assert past.tables == log_side(world.log, schema, world.watermarks[end]).tables
    assert world.endpoint.status()["log"]["head"] == world.watermarks[-1]


def test_the_official_cache_goes_through_the_past_and_its_replica_is_compared(
    world: World, postgres: PostgresServer, tmp_path: Path
) -> None:
    """While the cache runs, and after it was killed."""
    with zero_caches(postgres, tmp_path) as make, replay(world, world.watermarks[2], world.watermarks[5]) as process:
        cache = make(said(process, "listening")["url"]).start()
        assert said(process, "done")["transactions"] == 3
        assert process.wait(SECONDS) == 0
        cache.replica.wait_for_watermark(world.watermarks[-1], seconds=SECONDS)
        running = world.agrees("--replica", str(cache.replica.path))
        assert running["stages"] == dict.fromkeys(("log", "replica"), world.watermarks[-1])
        assert running["tables"]["item"]["rows"] == {"log": 20, "replica": 20}
        cache.kill()
        killed = world.agrees("--replica", str(cache.replica.path))
        assert killed["tables"] == running["tables"]
        assert killed["stages"]["replica"] == cache.replica.watermark()
