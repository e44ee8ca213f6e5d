"""What a built file holds: exactly what a consumer holds that took the snapshot and followed the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random

import pytest

from changesource_sdk.adapter import Position, RowsPartition, Snapshot, Table, Transaction
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.sqlite.coordination import SqliteCoordination
from changesource_sdk.changelog.sqlite.log import SqliteLog
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import ConfigurationError, StateError
from changesource_sdk.schema import Column
from changesource_sdk.seed import build, pieces
from changesource_sdk.seed.lanes import LocalSeedLane
from changesource_sdk.seed.pieces import PieceTask, Rows
from changesource_sdk.seed.plan import SeedOptions
from changesource_sdk.system_tables import Permissions
from tests.changesource_sdk.pipeline.changing_world import World, WorldAdapter
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog
from tests.changesource_sdk.seed.seeded_log import contents, indexes, query, seed_of


class WithoutSchemaChanges(World):
    """A world in which only rows change."""

    def _change(self) -> list:  # type: ignore[type-arg]
        kinds = (self._insert, self._update, self._partial, self._move, self._delete, self._truncate)
        return self._random.choice(kinds)()


@pytest.mark.parametrize("kind", [World, WithoutSchemaChanges])
@pytest.mark.parametrize("number", range(12))
def test_a_seed_holds_what_a_follower_of_the_log_holds(
    kind: type[World], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "BATCH_ROWS", 2)
    monkeypatch.setattr(build, "PIECE_BYTES", 1)
    world = kind(Random(f"{kind.__name__} {number}"), retypes=True)
    with closing(CompactedLog(tmp_path / "state", WorldAdapter(world))) as log:
        old = log.newest()
        world.live(transactions=12, changes=6)
        log.follow()
        expected = log.replica_from(old)
        replica = tmp_path / "replica.db"
        made = seed_of(log.store, replica)
        assert contents(replica) == expected.contents()
        assert indexes(replica) == expected.indexes()
        assert made.record.rows == sum(map(len, expected.contents().values()))
        assert query(replica, "PRAGMA integrity_check") == [("ok",)]
        of_rows = [query(replica, f'SELECT DISTINCT _0_version FROM "{name}"') for name in contents(replica)]
        assert {version for rows in of_rows for version in rows} <= {(made.replica_version,)}


class Unsorted:
    """Rows in no order, in several partitions, one of them twice."""

    TABLE = Table("item", [Column("id", str), Column("n", int)])

    def tables(self) -> Sequence[Table]:
        return [self.TABLE]

    def snapshot(self) -> Snapshot:
        keys = [f"{number * 7 % 100:03d}" for number in range(100)]
        parts = [RowsPartition("item", [{"id": key, "n": at} for key in keys[at::4]]) for at in range(4)]
        return Snapshot(0, [*parts, RowsPartition("item", [{"id": "050", "n": 99}])])

    def changes(self, after: Position) -> Iterator[Transaction]:
        return iter(())


def test_rows_are_in_key_order_and_the_last_of_equal_keys_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "BATCH_ROWS", 10)
    monkeypatch.setattr(build, "PIECE_BYTES", 1)
    with closing(CompactedLog(tmp_path / "state", Unsorted())) as log:
        seed_of(log.store, tmp_path / "replica.db")
    rows = query(tmp_path / "replica.db", "SELECT id, n FROM item ORDER BY rowid")
    assert [key for key, _ in rows] == [f"{number:03d}" for number in range(100)]
    assert ("050", 99) in rows


class Interrupted(LocalSeedLane):
    """Fails after some pieces, as a process that is killed; counts what is written."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after
        self.written: list[int] = []

    def write(self, tasks: Sequence[PieceTask], store: PartStore, done: Rows) -> None:
        for task in tasks:
            if len(self.written) == self._after:
                raise KeyboardInterrupt
            super().write([task], store, done)
            self.written.append(task.number)


def test_a_build_that_was_interrupted_continues_with_the_finished_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PIECE_BYTES", 1)
    with closing(CompactedLog(tmp_path / "state", Unsorted())) as log:
        first, second = Interrupted(2), Interrupted(100)
        with pytest.raises(KeyboardInterrupt):
            seed_of(log.store, tmp_path / "replica.db", lane=first)
        (unfinished,) = log.store.seeds.all()
        assert not (tmp_path / "replica.db").exists()
        made = seed_of(log.store, tmp_path / "replica.db", lane=second)
        assert (first.written, second.written) == ([0, 1], [2, 3, 4])
        assert made.record.version == unfinished.version
        assert unfinished.state == "building"
        assert [each.state for each in log.store.seeds.all()] == ["ready"]
        assert not log.layout.root.joinpath("seed.building").exists()


def test_a_build_with_other_options_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PIECE_BYTES", 1)
    with closing(CompactedLog(tmp_path / "state", Unsorted())) as log:
        with pytest.raises(KeyboardInterrupt):
            seed_of(log.store, tmp_path / "replica.db", lane=Interrupted(2))
        lane = Interrupted(100)
        seed_of(log.store, tmp_path / "replica.db", lane=lane, options=SeedOptions("other"))
        assert lane.written == [0, 1, 2, 3, 4]
        assert [each.app_id for each in log.store.seeds.all()] == ["other"]


def test_the_tables_that_every_app_needs_are_there(tmp_path: Path) -> None:
    with closing(CompactedLog(tmp_path / "state", Unsorted())) as log:
        options = SeedOptions("app", 3, ("b", "a"), permissions=Permissions("allow-all"))
        seed_of(log.store, tmp_path / "replica.db", options=options)
    replica = tmp_path / "replica.db"
    assert query(replica, 'SELECT count(*) FROM "app_3.clients"') == [(0,)]
    ((lock, document),) = query(replica, 'SELECT lock, permissions FROM "app.permissions"')
    assert (lock, list(json.loads(str(document))["tables"])) == (1, ["item"])
    assert query(replica, 'SELECT publications FROM "_zero.replicationConfig"') == [('["a","b"]',)]


def test_an_unknown_release_is_refused_and_nothing_is_recorded(tmp_path: Path) -> None:
    with closing(CompactedLog(tmp_path / "state", Unsorted())) as log:
        with pytest.raises(ConfigurationError, match="unknown-release"):
            seed_of(log.store, tmp_path / "replica.db", options=SeedOptions(release="1.8.0"))
        assert log.store.seeds.all() == []
        assert list(tmp_path.iterdir()) == [tmp_path / "state"]


def test_a_replica_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "replica.db").write_text("precious")
    with closing(CompactedLog(tmp_path / "state", Unsorted())) as log:
        with pytest.raises(StateError, match="replica-exists"):
            seed_of(log.store, tmp_path / "replica.db")
        assert (tmp_path / "replica.db").read_text() == "precious"


def test_a_log_without_snapshot_has_no_seed(tmp_path: Path) -> None:
    store = SqliteLogStore(tmp_path / "state")
    store.layout.create()
    with pytest.raises(StateError, match="no-snapshot"):
        seed_of(store, tmp_path / "replica.db")


@pytest.mark.parametrize("kind", [World, WithoutSchemaChanges])
def test_a_spool_that_hosts_share_holds_nothing_of_a_build_afterwards(
    kind: type[World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PIECE_BYTES", 1)
    layout, remote = StateDirectory(tmp_path / "state"), RemoteSpool((tmp_path / "remote").as_uri())
    store = LogStore(SnapshotFiles(layout, remote), partial(SqliteLog, layout), partial(SqliteCoordination, layout))
    world = kind(Random(3), retypes=False)
    with closing(CompactedLog(tmp_path / "state", WorldAdapter(world), store)) as log:
        old = log.newest()
        world.live(transactions=8, changes=6)
        log.follow()
        with pytest.raises(KeyboardInterrupt):
            seed_of(store, tmp_path / "replica.db", lane=Interrupted(1))
        seed_of(store, tmp_path / "replica.db")
        assert contents(tmp_path / "replica.db") == log.replica_from(old).contents()
    assert [name for name in remote.list() if name.startswith("seed-")] == []
