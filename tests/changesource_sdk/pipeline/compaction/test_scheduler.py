"""Compaction while the tail runs: started by the policy, registered by the writer, harmless when it fails."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Delete, Insert, Snapshot
from changesource_sdk.changelog.reading import ranges
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.pipeline.compaction.job import ReadableRange
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.compaction.scheduler import Compactor
from changesource_sdk.pipeline.inline import InlineRunner
from changesource_sdk.policies.compaction import CompactionPolicy, problem
from changesource_sdk.schema import Column, Table
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, watched

ITEM = Table("item", [Column("id", int), Column("v", str)])
EVERY_10 = CompactionPolicy(transactions=10)


class OnceOnly(MemoryAdapter):
    """A store that can be read whole once and never again."""

    asked = 0

    def snapshot(self) -> Snapshot:
        self.asked += 1
        assert self.asked == 1, "the upstream was read again"
        return super().snapshot()


def running(adapter: MemoryAdapter, state: Path, policy: CompactionPolicy) -> AbstractContextManager[Watched]:
    return watched(InlineRunner(lambda: adapter, SqliteLogStore(state), compaction=policy), state)


def test_a_growing_log_is_compacted_beside_the_tail(tmp_path: Path) -> None:
    store = MemoryStore([ITEM])
    store.commit([Insert("item", {"id": 0, "v": "first"})])
    with running(OnceOnly(store=store), tmp_path, EVERY_10) as seen:
        seen.until_generation(1)
        for number in range(1, 12):
            store.commit([Insert("item", {"id": number, "v": "x"}), Delete("item", {"id": number - 1})])
        seen.until(lambda: len(seen.log.snapshots()) > 1, "a compacted snapshot")
        store.commit([Insert("item", {"id": 99, "v": "y"})])
        seen.until_position(13)
        first, *_, newest = seen.log.snapshots()
        SqliteLogStore(tmp_path).requests.ask_prune(newest.watermark)
        seen.until(lambda: seen.log.state().oldest == newest.watermark, "pruning")
        assert newest.generation == first.generation
        assert not first.directory.exists()
        assert seen.log.state().generation == 1


def test_nothing_is_compacted_before_it_is_due(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, MemoryAdapter(store=(store := MemoryStore([ITEM]))))
    compactor = compactor_of(log, EVERY_10)
    for number in range(9):
        store.commit([Insert("item", {"id": number, "v": "x"})])
    log.follow()
    assert compactor.poll() is None
    store.commit([Insert("item", {"id": 9, "v": "x"})])
    log.follow()
    assert compactor.poll() == log.reader.state().head
    assert compactor.poll() is None, "one offer at a time"
    log.store.handoff.take(log.writer)
    assert compactor.poll() is None, "the count starts over"
    log.close()


def compactor_of(log: CompactedLog, policy: CompactionPolicy) -> Compactor:
    return Compactor(log.store, LocalLane(), policy, threading.Event())


def test_a_log_that_starts_over_meanwhile_gives_no_snapshot(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, MemoryAdapter(store=(store := MemoryStore([ITEM]))))
    for number in range(12):
        store.commit([Insert("item", {"id": number, "v": "x"})])
    log.follow()
    cut = ranges(log.reader, log.newest().watermark, log.reader.state().head, 100)
    watermark = log.writer.next_generation()
    directory = log.layout.spool / watermark
    directory.mkdir()
    log.writer.start_generation(watermark, 12, "", directory, 1.0)
    with pytest.raises(SnapshotGone):
        list(ReadableRange(log.store.open_log, cut[0]).changes())
    log.close()


def test_what_a_failed_compaction_wrote_is_removed(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, MemoryAdapter(store=(store := MemoryStore([ITEM]))))
    for number in range(12):
        store.commit([Insert("item", {"id": number, "v": "x"})])
    log.follow()
    (log.newest().directory / "part-00001.frames").unlink()
    with pytest.raises(SnapshotGone):
        compactor_of(log, EVERY_10).poll()
    assert not log.layout.compaction.exists()
    log.close()


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("256MB", CompactionPolicy(bytes=256_000_000)),
        ("1gb", CompactionPolicy(bytes=10**9)),
        ("100000tx", CompactionPolicy(transactions=100_000)),
        ("5kB, 10tx", CompactionPolicy(5000, 10)),
        ("never", CompactionPolicy()),
    ],
)
def test_a_policy_is_read_from_its_text(text: str, policy: CompactionPolicy) -> None:
    assert CompactionPolicy.parse(text) == policy
    assert problem(text) is None


@pytest.mark.parametrize("text", ["", "256", "lots", "5MB;6tx", "-1tx"])
def test_a_policy_that_cannot_be_understood_says_what_can(text: str) -> None:
    assert "256MB" in str(problem(text))


def test_either_limit_makes_compaction_due_but_not_for_a_trifle() -> None:
    policy = CompactionPolicy(bytes=1000, transactions=10)
    assert policy.is_due(transactions=1, size=1000, snapshot_size=0)
    assert policy.is_due(transactions=10, size=1, snapshot_size=0)
    assert not policy.is_due(transactions=9, size=999, snapshot_size=0)
    assert not policy.is_due(transactions=10, size=1000, snapshot_size=100_000)
    assert not CompactionPolicy().is_due(10**9, 10**12, 0)
