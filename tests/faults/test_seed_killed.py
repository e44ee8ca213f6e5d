"""`changesource seed` killed at random moments: no file appears half-made, and the last run completes it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.seed.workload import Issues
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog
from tests.changesource_sdk.seed.seeded_log import query
from tests.support.tools import REPOSITORY

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

ROWS = 400_000
KILLS = int(os.environ.get("CHANGESOURCE_KILLS", "8"))
SEED = int(os.environ.get("CHANGESOURCE_SEED", "20260103"))


def start(state: Path, replica: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "changesource_cli", "seed", "--runner", "inline", "--state", state]
    # The command refuses variables that it does not know, such as the number of kills.
    env = {name: value for name, value in os.environ.items() if not name.startswith("CHANGESOURCE_")}
    return subprocess.Popen([*map(str, command), "--replica", str(replica)], cwd=REPOSITORY, env=env)


def test_a_seed_survives_kills_while_it_is_built(tmp_path: Path) -> None:
    print(f"CHANGESOURCE_SEED={SEED} CHANGESOURCE_KILLS={KILLS}")
    chance = random.Random(SEED)
    state, replica = tmp_path / "state", tmp_path / "replica.db"
    with closing(CompactedLog(state, Issues(rows=str(ROWS), gate=str(tmp_path / "gate")))) as log:
        begun = time.monotonic()
        assert start(state, tmp_path / "whole.db").wait() == 0
        usual = time.monotonic() - begun
        kept = 0
        for _ in range(KILLS):
            child = start(state, replica)
            try:
                child.wait(chance.uniform(0.2, 0.9) * usual)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                child.wait()
            if replica.exists():
                break
            pieces = len(list(tmp_path.glob("replica.db.building/pieces/part-*.sqlite")))
            assert pieces >= kept or not (tmp_path / "replica.db.building/plan.json").exists()
            kept = pieces
        if not replica.exists():
            assert start(state, replica).wait() == 0
        assert len([each for each in log.store.seeds.all() if each.target == str(replica)]) == 1
    assert query(replica, "PRAGMA integrity_check") == [("ok",)]
    assert query(replica, "SELECT count(*), sum(id) FROM issue") == query(
        tmp_path / "whole.db", "SELECT count(*), sum(id) FROM issue"
    )
    assert list(tmp_path.glob("replica.db.building*")) == []
