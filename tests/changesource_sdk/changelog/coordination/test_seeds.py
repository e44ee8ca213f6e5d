"""What the record of seeds keeps of the log, and which seeds a log continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from changesource_sdk.changelog.coordination.seeds import SeedRecord, claim, ready, uncovered
from changesource_sdk.changelog.retention import prune_point
from changesource_sdk.errors import StateError
from changesource_sdk.pipeline.snapshot.take import take_snapshot
from protocol.watermark import from_int, to_int
from tests.changesource_sdk.pipeline.changing_world import World, WorldAdapter
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog

HOUR_MS = 3_600_000.0


def record(watermark: str, held: str, created_ms: float = 0.0) -> SeedRecord:
    return SeedRecord(f"{watermark}.01", "zero", 0, "1.9.0", watermark, held, created_ms, "file")


@pytest.fixture
def world() -> World:
    from random import Random

    return World(Random(1), retypes=False)


@pytest.fixture
def log(tmp_path: Path, world: World) -> Iterator[CompactedLog]:
    with closing(CompactedLog(tmp_path / "state", WorldAdapter(world))) as made:
        yield made


def test_the_log_is_kept_for_a_seed_as_long_as_for_an_absent_consumer() -> None:
    building = record("05", held="02")
    assert prune_point("09", [], 0.0, HOUR_MS, [building]) == "02"
    assert prune_point("09", [], 0.0, HOUR_MS, [ready(building, 1, 1)]) == "05"
    assert prune_point("09", [], HOUR_MS + 1, HOUR_MS, [ready(building, 1, 1)]) == "09"


def test_the_record_survives_and_forgets(log: CompactedLog) -> None:
    first, second = record("05", "02"), record("06", "02")
    log.store.seeds.put(second)
    log.store.seeds.put(first)
    log.store.seeds.put(ready(first, 3, 4))
    assert log.store.seeds.all() == [ready(first, 3, 4), second]
    log.store.seeds.remove(first.version, "unknown")
    assert log.store.seeds.all() == [second]


def test_only_one_process_makes_a_seed(log: CompactedLog) -> None:
    with log.store.seeding(), pytest.raises(StateError, match="seed-running"), log.store.seeding():
        pass


def test_claims_of_an_old_head_are_unique_and_below_the_next_transaction(log: CompactedLog, world: World) -> None:
    head = log.reader.state().head
    world.live(transactions=3, changes=4)
    log.follow()
    following = log.reader.read_after(head, 1 << 30)[0].watermark
    with closing(log.store.open_coordination()) as coordination:
        coordination.issue("zero", 0, log.reader.state().head, held=head, now_ms=5.0)
        made = [claim(log.reader, coordination, "zero", 0, head, 5.0) for _ in range(3)]
    assert made == sorted(set(made))
    assert all(head < version < following for version in made)


def test_a_log_does_not_continue_what_it_has_pruned_lost_or_left_behind(log: CompactedLog, world: World) -> None:
    head = log.reader.state().head
    assert uncovered(log.reader, head) is None
    world.live(transactions=4, changes=4)
    log.follow()
    newer = log.reader.state().head
    assert uncovered(log.reader, head) is None
    major = to_int(newer)[0]
    assert "ends at" in str(uncovered(log.reader, from_int(major + 1)))
    log.compact()
    log.writer.prune(newer)
    assert "begins at" in str(uncovered(log.reader, head))
    with closing(log.store.open_coordination()) as coordination, pytest.raises(StateError, match="seed-not-covered"):
        claim(log.reader, coordination, "zero", 0, head, 5.0)
    take_snapshot(log.adapter, log.writer, log.layout, lambda: 1.0)
    assert "started over" in str(uncovered(log.reader, newer))
