"""The pipeline process killed anywhere: in the snapshot, in a transaction, between append and acknowledgement."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import orjson
import pytest

from changesource_sdk.changelog.log import LogState
from changesource_sdk.changelog.open import open_store
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.pipeline.settings import PipelineSettings, command_line
from changesource_sdk.pipeline.source import SourceSpec
from protocol.framing import unframe
from tests.changesource_sdk.pipeline.counting_adapter import copies
from tests.changesource_sdk.pipeline.runner_fixtures import Watched

KILLS = int(os.environ.get("CHANGESOURCE_KILLS", "6"))
SEED = int(os.environ.get("CHANGESOURCE_SEED", "20260102"))
ADAPTER = "tests.changesource_sdk.pipeline.counting_adapter:CountingAdapter"


def rows_of(blocks: list[bytes]) -> list[tuple[int, int]]:
    changes = [orjson.loads(payload)[1] for block in blocks for payload in unframe(block)]
    return [(change["new"]["id"], change["new"]["copy"]) for change in changes if change.get("tag") == "insert"]


def check_whole(store: LogStore) -> LogState:
    """Snapshot plus log are exactly the history up to the log's position."""
    log = store.open_log()
    found, stored = log.state(), log.read_after("00", 1 << 40)
    while log.state() != found:
        # A server goes on with what a killed client sent last: that may be in the one and not in the other.
        found, stored = log.state(), log.read_after("00", 1 << 40)
    if found.generation:
        (record,) = log.snapshots()
        start = record.position
        assert isinstance(start, int)
        assert isinstance(found.position, int)
        served = list(snapshots.blocks(record.directory, snapshots.read_manifest(record.directory)))
        assert sorted(rows_of(served)) == [(number, 0) for number in range(1, start + 1)]
        streamed = [chunk for transaction in stored for chunk in transaction.chunks()]
        expected = [(n, copy) for n in range(start + 1, found.position + 1) for copy in range(copies(n))]
        assert rows_of(streamed) == expected
    log.close()
    return found


def _reached(state: LogState) -> int:
    """How far the history is in the log; unlike the number of transactions it survives a new generation."""
    return state.position if isinstance(state.position, int) else 0


def run_and_kill(command: list[str], seen: Watched, chance: random.Random) -> None:
    """Kill the pipeline during its snapshot, or after it moved by a random number of transactions."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        before = seen.log.state()
        if before.generation == 0 and chance.random() < 0.7:
            seen.until(lambda: any((seen.state / "spool").glob("*/part-*")), "a part of the snapshot")
        else:
            target = chance.randint(1, 60)
            seen.until(lambda: _reached(seen.log.state()) >= _reached(before) + target, "more transactions")
    finally:
        child.kill()
        child.communicate()


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_pipeline_killed_again_and_again_loses_and_doubles_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    print(f"CHANGESOURCE_SEED={SEED} CHANGESOURCE_KILLS={KILLS}")
    chance = random.Random(SEED)
    state = tmp_path / "state"
    log = request.getfixturevalue("postgres").create_database("log") if kind == "postgres" else None
    store = open_store(state, log)
    pipeline = PipelineSettings(SourceSpec(ADAPTER, {"acknowledged": str(tmp_path / "acknowledged")}), log=log)
    command = command_line(pipeline, state)
    seen = Watched(store, patience_s=60)
    last = LogState()
    for number in range(KILLS):
        run_and_kill(command, seen, chance)
        found = check_whole(store)
        assert found.head >= last.head
        last = found
        if number == KILLS // 2:
            store.requests.ask_snapshot(found.head, "a new generation in the middle")
    seen.close()
    store.close()
    assert last.generation > 0
