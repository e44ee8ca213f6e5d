"""The replicator in a process of its own: the same calls, and nothing is left of it when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from reference_cache.replica.replica import open_replica
from reference_cache.replica.stored_catalog import Origin, ReplicaState
from reference_cache.replicator.process import ReplicatorFailed, ReplicatorProcess
from reference_cache.replicator.settings import ReplicatorSettings
from tests.reference_cache.sources import ScriptedSource, insert, play, snapshot, transaction


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_versions_arrive_and_a_killed_child_is_started_again(tmp_path: Path) -> None:
    scenes = [play(*snapshot("01")), play(*transaction("02", insert(2))), play(*transaction("03", insert(3)))]
    async with ScriptedSource(*scenes) as source:
        replicator = ReplicatorProcess(ReplicatorSettings(source.url, tmp_path / "replica.db", Origin("zero")))
        states: asyncio.Queue[ReplicaState] = asyncio.Queue()
        replicator.on_version(states.put_nowait)
        running = asyncio.create_task(replicator.run())
        async with asyncio.timeout(90):
            while (await states.get()).version != "02":
                pass
            replicator.forget_changes("02")
            first = replicator.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            while (await states.get()).version != "03":
                pass
            second = replicator.pid
            assert second not in (None, first)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert second is not None
        assert not _alive(second)
    replica = open_replica(tmp_path / "replica.db")
    assert replica.connect().execute("SELECT id FROM item").fetchall() == [(2,), (3,)]


async def test_a_file_that_is_no_replica_is_left_alone_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "replica.db"
    path.write_bytes(b"precious" * 1000)
    replicator = ReplicatorProcess(ReplicatorSettings("ws://127.0.0.1:9/none", path, Origin("zero")))
    with pytest.raises(ReplicatorFailed, match="no replica of this cache"):
        await asyncio.wait_for(replicator.run(), 90)
    assert path.read_bytes() == b"precious" * 1000
