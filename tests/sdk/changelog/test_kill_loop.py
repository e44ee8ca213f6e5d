"""Killed at any instruction, the log is a whole prefix: no gap, no double, nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from changesource_sdk.changelog.sqlite_log import SqliteLogReader
from protocol.framing import unframe
from tests.sdk.changelog.appending_child import body

KILLS = int(os.environ.get("CHANGESOURCE_KILLS", "8"))
SEED = int(os.environ.get("CHANGESOURCE_SEED", "20260101"))


def run_and_kill(state: Path, seed: int, chance: random.Random) -> int:
    """Start the child, kill it after a random number of steps; the last position it knew to be durable."""
    command = [sys.executable, "-m", "tests.sdk.changelog.appending_child", str(state), str(seed)]
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


def check_whole(state: Path, acknowledged: int) -> None:
    reader = SqliteLogReader(state)
    log = reader.state()
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
    assert isinstance(log.position, int)
    assert log.position >= acknowledged
    assert positions == list(range(log.position - len(positions) + 1, log.position + 1))
    assert marks == sorted(set(marks))
    assert log.head == (marks[-1] if marks else log.oldest)
    assert all(snapshot.directory.is_dir() for snapshot in reader.snapshots())
    reader.close()


@pytest.mark.faults
def test_a_log_killed_again_and_again_stays_a_whole_prefix(tmp_path: Path) -> None:
    print(f"CHANGESOURCE_SEED={SEED} CHANGESOURCE_KILLS={KILLS}")
    chance = random.Random(SEED)
    reached = 0
    for number in range(KILLS):
        acknowledged = run_and_kill(tmp_path, SEED + number, chance)
        check_whole(tmp_path, acknowledged)
        assert acknowledged > reached
        reached = acknowledged
