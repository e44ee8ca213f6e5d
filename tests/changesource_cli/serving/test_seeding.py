"""`serve --seed-every`: seeds are made while it runs, old ones are deleted, and a restart does not repeat one."""

from __future__ import annotations

from pathlib import Path

import pytest

from changesource_sdk.config import load
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.policies.seeding import interval_problem, interval_seconds, wait_seconds
from changesource_sdk.seed.publish import SeedFolder
from tests.support.peers.serving import Serving
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore


@pytest.mark.parametrize(
    ("text", "seconds"), [("never", None), ("30s", 30.0), ("5m", 300.0), ("6h", 21600.0), ("1 D", 86400.0)]
)
def test_intervals_are_read(text: str, seconds: float | None) -> None:
    assert interval_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "6", "h", "0h", "-1h", "1.5h", "6 hours"])
def test_other_texts_are_refused(text: str) -> None:
    assert "30m" in str(interval_problem(text))


def test_the_next_seed_follows_from_the_newest() -> None:
    assert wait_seconds(None, 60, 1_000_000) == 0
    assert wait_seconds(1_000_000, 60, 1_010_000) == 50
    assert wait_seconds(1_000_000, 60, 2_000_000) == 0


def test_seeds_need_somewhere_to_go() -> None:
    with pytest.raises(ConfigurationError, match="no-seed-target"):
        load(environment={}, flags={"seed_every": "6h"})
    with pytest.raises(ConfigurationError, match="unknown-key"):
        load(environment={"CHANGESOURCE_SEED_EVRY": "6h"}, flags={})


@pytest.mark.timeout(120)
def test_serve_makes_seeds_and_deletes_old_ones(tmp_path: Path) -> None:
    store = SqliteStore(
        tmp_path / "app.db", "CREATE TABLE item (id INTEGER PRIMARY KEY)", "INSERT INTO item VALUES (1)"
    )
    folder = SeedFolder(str(tmp_path / "seeds"))
    options = ("--seed-every", "1s", "--seed-to", str(tmp_path / "seeds"), "--seed-keep", "1", "--seed-app-id", "app")
    with Serving("sqlite", {"path": str(store.path)}, tmp_path / "state", options=options) as serving:
        serving.start()
        first = until(lambda: folder.list("app", 0), "a seed", seconds=60)[0]
        newer = until(
            lambda: [each for each in folder.list("app", 0) if each.version > first.version], "the next", seconds=60
        )
        until(lambda: first not in folder.list("app", 0), "the first deleted", seconds=60)
        assert first.rows == newer[0].rows == 1
        assert until(lambda: serving.status()["seeds"], "the record of seeds")[-1]["app"] == "app"
