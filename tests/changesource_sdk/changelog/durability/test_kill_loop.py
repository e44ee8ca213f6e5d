"""Killed at any instruction, the log is a whole prefix: no gap, no double, nothing acknowledged is lost."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys

import pytest

from changesource_sdk.changelog.store import LogStore
from protocol.framing import unframe
from tests.changesource_sdk.changelog.durability.appending_child import body
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest

KILLS = int(os.environ.get("CHANGESOURCE_KILLS", "8"))
SEED = int(os.environ.get("CHANGESOURCE_SEED", "20260101"))


def run_and_kill(store: LogStore, seed: int, chance: random.Random) -> int:
    """Start the child, kill it after a random number of steps; the last position it knew to be durable."""
    command = [
        sys.executable,
        "-m",
        "tests.changesource_sdk.changelog.durability.appending_child",
        pickle.dumps(store).hex(),
        str(seed),
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = 0
    for _ in range(chance.randint(1, 25)):
        line = child.stdout.readline()
        assert line, f"the child ended by itself with {child.wait()}"
        acknowledged = int(line)
    child.kill()
    rest = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    return int(rest[-1]) if rest else acknowledged


def check_whole(store: LogStore, acknowledged: int) -> None:
    reader = store.open_log()
    state = reader.state()
    stored = reader.read_after("00", 1 << 30)
    positions = []
    for item in stored:
        first, *data, last = [payload for chunk in item.chunks() for payload in unframe(chunk)]
        assert item.watermark.encode() in first
        assert item.watermark.encode() in last
        position = int(data[0].split(b":")[1].split(b",")[0])
        assert data == [payload for frames in body(position) for payload in unframe(frames)]
        positions.append(position)
    marks = [item.watermark for item in stored]
    assert isinstance(state.position, int)
    assert state.position >= acknowledged
    assert positions == list(range(state.position - len(positions) + 1, state.position + 1))
    assert marks == sorted(set(marks))
    assert state.head == (marks[-1] if marks else state.oldest)
    assert all(snapshot.directory.is_dir() for snapshot in reader.snapshots())
    reader.close()


@pytest.mark.faults
def test_a_log_killed_again_and_again_stays_a_whole_prefix(log: LogUnderTest) -> None:
    print(f"CHANGESOURCE_SEED={SEED} CHANGESOURCE_KILLS={KILLS}")
    chance = random.Random(SEED)
    reached = 0
    for number in range(KILLS):
        acknowledged = run_and_kill(log.store, SEED + number, chance)
        check_whole(log.store, acknowledged)
        assert acknowledged > reached
        reached = acknowledged
