"""The digests and the log are two memories: whatever becomes of one of them, consumers get the right rows.

Each test brings the two out of step in one way. What is asserted is always the same: after a sync the consumer has
exactly the upstream's rows. Where the digests can lead there, no snapshot is taken.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from changesource_sdk import ResyncRequired
from changesource_sdk.by_difference.digest_file import DigestFile
from tests.changesource_sdk.by_difference.shelf import Pipeline


def write(pipeline: Pipeline, number: int) -> None:
    """Insert, update and delete."""
    pipeline.upstream.put(100 + number, "new")
    pipeline.upstream.put(1, f"version {number}")
    pipeline.upstream.rows["note"].pop(2 + number, None)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline(tmp_path)
    for id in range(1, 10):
        pipeline.upstream.put(id, f"text {id}")
    pipeline.snapshot()
    write(pipeline, 0)
    pipeline.sync()
    return pipeline


def after_writes(pipeline: Pipeline, *, snapshots: int) -> None:
    """Sync what was written in between, and again what is written after."""
    write(pipeline, 5)
    pipeline.restart()
    pipeline.sync()
    pipeline.check()
    write(pipeline, 6)
    pipeline.sync()
    pipeline.check()
    assert pipeline.log.snapshots == snapshots


@pytest.mark.parametrize("polls", [1, 2, 3])
def test_the_process_dies_after_its_digests_and_before_the_log(pipeline: Pipeline, polls: int) -> None:
    durable = pipeline.log.copy()
    for number in range(1, polls + 1):
        write(pipeline, number)
        pipeline.sync(acknowledge=False)
    pipeline.log.restore(durable)
    after_writes(pipeline, snapshots=1)


def test_a_write_is_undone_upstream_between_the_digests_and_the_log(pipeline: Pipeline) -> None:
    pipeline.upstream.put(1, "for a moment")
    assert len(pipeline.poll()) == 1
    pipeline.upstream.put(1, "version 0")
    pipeline.restart()
    assert pipeline.poll() == []
    pipeline.check()


def test_the_log_is_restored_to_a_position_that_was_acknowledged_over(pipeline: Pipeline) -> None:
    old = pipeline.log.copy()
    for number in (1, 2):
        write(pipeline, number)
        pipeline.sync()
    pipeline.log.restore(old)
    after_writes(pipeline, snapshots=2)


def test_the_log_goes_forward_again_after_it_went_back(pipeline: Pipeline) -> None:
    old = pipeline.log.copy()
    write(pipeline, 1)
    pipeline.sync(acknowledge=False)
    new = pipeline.log.copy()
    pipeline.log.restore(old)
    write(pipeline, 2)
    pipeline.sync(acknowledge=False)
    pipeline.log.restore(new)
    after_writes(pipeline, snapshots=1)


def test_the_digests_are_lost(pipeline: Pipeline) -> None:
    shutil.rmtree(pipeline.state)
    after_writes(pipeline, snapshots=2)


def test_the_digests_are_restored_from_an_older_copy(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.save(tmp_path / "copy")
    write(pipeline, 1)
    pipeline.sync()
    pipeline.restore(tmp_path / "copy")
    after_writes(pipeline, snapshots=2)


def test_both_are_restored_from_copies_of_one_time(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.save(tmp_path / "copy")
    old = pipeline.log.copy()
    write(pipeline, 1)
    pipeline.sync()
    pipeline.restore(tmp_path / "copy")
    pipeline.log.restore(old)
    after_writes(pipeline, snapshots=1)


def test_both_are_restored_and_the_log_alone_comes_back(pipeline: Pipeline, tmp_path: Path) -> None:
    """Version numbers are used a second time then, tokens are not."""
    pipeline.save(tmp_path / "copy")
    old = pipeline.log.copy()
    write(pipeline, 1)
    pipeline.sync()
    new = pipeline.log.copy()
    pipeline.restore(tmp_path / "copy")
    pipeline.log.restore(old)
    pipeline.upstream.put(50, "only in the second history")
    pipeline.restart()
    pipeline.sync()
    pipeline.log.restore(new)
    after_writes(pipeline, snapshots=2)


def test_the_digests_of_another_snapshot(pipeline: Pipeline, tmp_path: Path) -> None:
    old = pipeline.log.copy()
    write(pipeline, 1)
    pipeline.snapshot()
    pipeline.sync()
    pipeline.log.restore(old)
    after_writes(pipeline, snapshots=3)


def test_a_snapshot_that_another_command_takes_disturbs_nobody(pipeline: Pipeline) -> None:
    other = type(pipeline.adapter)(str(pipeline.state))
    snapshot = other.snapshot()
    assert snapshot.close is not None
    snapshot.close()
    after_writes(pipeline, snapshots=1)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _overwrite(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(bytes(content))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _no_database(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


@pytest.mark.parametrize("damage", [_cut, _overwrite, _empty, _no_database])
def test_the_digests_are_damaged(pipeline: Pipeline, damage: Callable[[Path], None]) -> None:
    for id in range(1000, 1500):
        pipeline.upstream.put(id, "more")
    pipeline.sync()
    (path,) = pipeline.state.glob("*/digests.sqlite")
    damage(path)
    after_writes(pipeline, snapshots=2)


def test_the_digests_of_a_later_version_of_this_software(pipeline: Pipeline) -> None:
    (path,) = pipeline.state.glob("*/digests.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(ResyncRequired, match="another version"):
        pipeline.poll()


@pytest.mark.parametrize("position", [None, 7, "x", [1], ["a", "b"], {"number": 1}])
def test_a_position_of_another_adapter(pipeline: Pipeline, position: object) -> None:
    pipeline.log.position = position  # type: ignore[assignment]
    after_writes(pipeline, snapshots=2)


def test_two_processes_cannot_mix_their_listings(pipeline: Pipeline) -> None:
    """The second one commits while the first still lists: the first must not commit what it compared before."""
    other = type(pipeline.adapter)(str(pipeline.state))

    def interfere(number: int) -> None:
        pipeline.upstream.before_row = lambda number: None
        pipeline.upstream.put(500, "written in between")
        assert len(list(other.changes(pipeline.log.position))) == 1

    write(pipeline, 1)
    pipeline.upstream.before_row = interfere
    with pytest.raises(Exception, match="state-in-use"):
        pipeline.poll()
    after_writes(pipeline, snapshots=1)


def test_what_was_acknowledged_is_deleted(pipeline: Pipeline) -> None:
    for number in range(1, 6):
        write(pipeline, number)
        pipeline.sync(acknowledge=False)
    (path,) = pipeline.state.glob("*/digests.sqlite")
    with DigestFile(path) as file:
        assert file.retained() > 0
    pipeline.adapter.acknowledge(pipeline.log.position)
    with DigestFile(path) as file:
        assert file.retained() == 0


def test_folders_of_earlier_snapshots_and_dead_processes_are_deleted(pipeline: Pipeline) -> None:
    dead = pipeline.state / "5"
    dead.mkdir()
    (dead / "being-filled").touch()
    pipeline.snapshot()
    assert not dead.exists()
    pipeline.sync()
    assert len(list(pipeline.state.iterdir())) == 1


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_writes_crashes_and_restores_ends_with_the_right_rows(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    pipeline = Pipeline(tmp_path)
    pipeline.upstream.put(1, "first")
    pipeline.snapshot()
    logs = [pipeline.log.copy()]
    pipeline.save(tmp_path / "copy-0")
    copies = 1

    def change() -> None:
        for _ in range(chance.randrange(1, 5)):
            id = chance.randrange(12)
            if chance.random() < 0.3:
                pipeline.upstream.rows["note"].pop(id, None)
            else:
                pipeline.upstream.put(id, f"{chance.randrange(4)}")

    for _ in range(60):
        match chance.choice(["write", "write", "sync", "sync", "crash", "save", "log", "digests", "lost"]):
            case "write":
                change()
            case "sync":
                pipeline.sync(acknowledge=chance.random() < 0.5)
                pipeline.check()
            case "crash":
                change()
                try:
                    pipeline.poll()
                except ResyncRequired:
                    pass
                pipeline.restart()
            case "save":
                logs.append(pipeline.log.copy())
                pipeline.save(tmp_path / f"copy-{copies}")
                copies += 1
            case "log":
                pipeline.log.restore(chance.choice(logs))
                pipeline.restart()
            case "digests":
                pipeline.restore(tmp_path / f"copy-{chance.randrange(copies)}")
                pipeline.restart()
            case "lost" if chance.random() < 0.3:
                shutil.rmtree(pipeline.state, ignore_errors=True)
                pipeline.restart()
    pipeline.sync()
    pipeline.check()
