"""An interrupted snapshot: gone on with where the store can show it again, else started over, never mixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from changesource_sdk.adapter import Position, Row, Snapshot, Table, Transaction
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.snapshots import PartInfo
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.errors import AdapterError, DiskFull
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules
from changesource_sdk.pipeline.snapshot.resume import Unfinished
from changesource_sdk.pipeline.snapshot.take import (
    PartTask,
    SnapshotLane,
    SnapshotProgress,
    take_snapshot,
    write_partition,
)
from changesource_sdk.schema import Column

ITEM = Table("item", [Column("id", int)])


@dataclass(frozen=True, slots=True)
class One:
    """One row, and a file that tells how often it was read."""

    number: int
    folder: Path
    table: str = "item"
    has_bad_row: bool = False

    def rows(self) -> Iterator[Row]:
        with (self.folder / f"read-{self.number}").open("a") as file:
            file.write("x")
        yield {"id": self.number}
        if self.has_bad_row:
            yield {"id": f"bad {self.number}"}


class Copied:
    """Three partitions of a copy that is a folder; every snapshot has a later position."""

    def __init__(self, folder: Path, *, can_resume: bool = True) -> None:
        self._folder = folder
        self._can_resume = can_resume
        self.taken = 0
        self.has_bad_rows = False

    def tables(self) -> Sequence[Table]:
        return [ITEM]

    def snapshot(self) -> Snapshot:
        self.taken += 1
        copy = self._folder / f"copy-{self.taken}"
        copy.mkdir()
        parts = [One(number, self._folder, has_bad_row=self.has_bad_rows) for number in range(3)]
        resume = copy.exists if self._can_resume else None
        return Snapshot(self.taken, parts, close=partial(_remove, copy), can_resume=resume)

    def changes(self, after: Position) -> Iterator[Transaction]:
        return iter(())


def _remove(folder: Path) -> None:
    if folder.exists():
        folder.rmdir()


class Interrupted:
    """Writes parts like a runner that notes them, and fails after so many."""

    def __init__(self, after: int, error: Exception | None = None) -> None:
        self._after = after
        self._error = error or DiskFull("disk-full", "no room")

    def __call__(
        self, part_store: PartStore, tasks: Sequence[PartTask], progress: SnapshotProgress
    ) -> Sequence[PartInfo]:
        parts: list[PartInfo] = []
        for task in tasks:
            if len(parts) == self._after:
                raise self._error
            with part_store.scratch() as own:
                parts.append(write_partition(own, task))
                part_store.put(own / parts[-1].file, parts[-1])
        return parts


class Site:
    """A state directory, a store, and one runner after another that takes a snapshot."""

    def __init__(self, folder: Path, *, can_resume: bool = True) -> None:
        self.folder = folder
        self.layout = StateDirectory(folder / "state")
        self.store = Copied(folder, can_resume=can_resume)

    def take(
        self,
        after: int = 99,
        error: Exception | None = None,
        source: str = "store",
        rules: BadValueRules | None = None,
    ) -> snapshots.Manifest:
        writer = SqliteLogStore(self.layout.root).open_writer(lambda: 1_000_000)
        try:
            record = take_snapshot(
                self.store,
                writer,
                self.layout,
                lambda: 1.0,
                lane=SnapshotLane(Interrupted(after, error), unfinished=Unfinished(self.layout, source)),
                rules=rules,
            )
            return snapshots.read_manifest(record.directory)
        finally:
            writer.close()

    def interrupt(self, after: int, error: Exception | None = None, rules: BadValueRules | None = None) -> None:
        with pytest.raises((DiskFull, AdapterError)):
            self.take(after, error, rules=rules)

    def reads(self) -> list[int]:
        return [len((self.folder / f"read-{number}").read_text()) for number in range(3)]

    def copies(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("copy-*"))

    def spool(self) -> list[str]:
        return sorted(path.name for path in self.layout.spool.iterdir())


def test_only_missing_parts_are_read_and_the_store_is_asked_once(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.interrupt(after=2)
    assert site.copies() == ["copy-1"]
    manifest = site.take()
    assert site.reads() == [1, 1, 1]
    assert (site.store.taken, manifest.position, manifest.rows) == (1, 1, 3)
    assert [part.file for part in manifest.parts[1:4]] == [snapshots.part_name(number) for number in (1, 2, 3)]
    assert len(b"".join(snapshots.blocks(site.layout.spool / manifest.watermark, manifest))) == manifest.bytes


def test_a_finished_snapshot_leaves_nothing_behind(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.interrupt(after=1)
    manifest = site.take()
    assert site.copies() == []
    assert site.spool() == [manifest.watermark]
    assert not list(site.layout.root.glob("unfinished*"))
    assert not list((site.layout.spool / manifest.watermark).glob("*.json.*"))
    assert [path.name for path in (site.layout.spool / manifest.watermark).glob("*.json")] == [snapshots.MANIFEST]


def test_a_cut_part_is_read_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.interrupt(after=2)
    (staged,) = site.layout.spool.iterdir()
    (staged / snapshots.part_name(1)).write_bytes(b"")
    manifest = site.take()
    assert site.reads() == [2, 1, 1]
    assert len(b"".join(snapshots.blocks(site.layout.spool / manifest.watermark, manifest))) == manifest.bytes


def test_a_store_that_cannot_show_it_again_starts_over(tmp_path: Path) -> None:
    site = Site(tmp_path, can_resume=False)
    site.interrupt(after=2)
    assert site.copies() == []
    assert site.take().position == 2
    assert site.reads() == [2, 2, 1]


def test_a_copy_that_is_gone_starts_over(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.interrupt(after=2)
    (tmp_path / "copy-1").rmdir()
    manifest = site.take()
    assert manifest.position == 2
    assert site.spool() == [manifest.watermark]


def test_another_source_does_not_go_on_with_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.interrupt(after=2)
    assert site.take(source="another").position == 2
    assert site.copies() == []


def test_rows_at_fault_are_read_from_a_new_snapshot(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.interrupt(after=1, error=AdapterError("value-does-not-fit", "seven"))
    assert site.copies() == []
    assert site.spool() == []
    assert site.take().position == 2


def test_dead_letters_of_parts_that_were_finished_before_are_kept(tmp_path: Path) -> None:
    site, rules = Site(tmp_path), BadValueRules("dead-letter")
    site.store.has_bad_rows = True
    site.interrupt(after=2, rules=rules)
    manifest = site.take(rules=rules)
    assert site.reads() == [1, 1, 1]
    assert [part.rows for part in manifest.parts[1:4]] == [1, 1, 1]
    with closing(SqliteLogStore(site.layout.root).open_log()) as log:
        kept = log.kept_aside()
    assert {letter.row for letter in kept.letters} == {f"id='bad {number}'" for number in range(3)}
    assert kept.counts == {("item", "left out"): 3}
    # The log has them; the manifest, which earlier releases read, does not.
    assert b"letters" not in (site.layout.spool / manifest.watermark / snapshots.MANIFEST).read_bytes()


def test_an_unreadable_plan_starts_over(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.interrupt(after=1)
    (plan,) = site.layout.root.glob("unfinished*")
    assert plan.stat().st_mode & 0o077 == 0
    plan.write_bytes(b"of another release")
    assert site.take().position == 2
