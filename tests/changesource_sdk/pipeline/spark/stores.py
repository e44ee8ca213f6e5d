"""Adapters for the Spark lanes: importable by tasks, and wrong in one way each where they say so."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from changesource_sdk.adapter import Insert, Position, Row, RowsPartition, Snapshot, Table, Transaction
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.sqlite.log import SqliteLog
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.schema import Column

ITEM = Table("item", [Column("id", int), Column("name", str)])


@dataclass(frozen=True, slots=True)
class Numbers:
    """Rows `first` to `last`; what its process does on the way is decided by files in `folder`."""

    first: int
    last: int
    folder: str
    table: str = "item"

    def rows(self) -> Iterable[Row]:
        for number in range(self.first, self.last):
            if number == self.first + 10:
                once(Path(self.folder) / f"kill-{self.first}", lambda: os.kill(os.getpid(), signal.SIGKILL))
                once(Path(self.folder) / f"raise-{self.first}", hang_up)
            yield {"id": number, "name": f"item {number}"}


def hang_up() -> None:
    raise ConnectionError("the store hung up")


def once(order: Path, act: object) -> None:
    """Carry out an order once: its file is gone before the act."""
    try:
        order.unlink()
    except FileNotFoundError:
        return
    assert callable(act)
    act()


class NumbersAdapter:
    """4 partitions of 1000 rows; every transaction in the file `transactions` is one number per line."""

    poll_interval = 0.01

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def tables(self) -> Sequence[Table]:
        return [ITEM]

    def snapshot(self) -> Snapshot:
        return Snapshot(0, [Numbers(start, start + 1000, self.folder) for start in range(0, 4000, 1000)])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        file = Path(self.folder) / "transactions"
        lines = file.read_text().splitlines() if file.exists() else []
        for position, line in enumerate(lines[after:], start=after + 1):
            if line == "kill":
                once(Path(self.folder) / "kill", lambda: os.kill(os.getpid(), signal.SIGKILL))
                line = str(10_000 + position)
            yield Transaction(position, [Insert("item", {"id": int(line), "name": "late"})])


class DriverAdapter(NumbersAdapter):
    """Counts what it adds with a Spark job, so it needs the driver's session."""

    uses_spark = True

    def changes(self, after: Position) -> Iterator[Transaction]:
        from pyspark.sql import SparkSession

        for transaction in super().changes(after):
            number = SparkSession.builder.getOrCreate().range(7).count()
            yield Transaction(transaction.position, [Insert("item", {"id": number, "name": "counted"})])


class Unpicklable(NumbersAdapter):
    """Its partition holds a lock."""

    def snapshot(self) -> Snapshot:
        return Snapshot(0, [Locked()])


class Locked:
    """A partition that cannot leave its process."""

    table = "item"

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def rows(self) -> Iterable[Row]:
        return []


@dataclass(frozen=True, slots=True)
class WrongRows:
    """A text where the table has a number."""

    table: str = "item"

    def rows(self) -> Iterable[Row]:
        yield {"id": "seven", "name": "wrong"}


class WrongType(NumbersAdapter):
    """Its rows do not fit its tables."""

    def snapshot(self) -> Snapshot:
        return Snapshot(0, [WrongRows()])


class SomeWrongRows(NumbersAdapter):
    """Half of its rows do not fit, in two partitions."""

    def snapshot(self) -> Snapshot:
        table = self.tables()[0]
        other = {name: None for name in table.column_names if name != "id"}
        parts: list[list[Row]] = [
            [{**other, "id": 1}, {**other, "id": "two"}],
            [{**other, "id": 3}, {**other, "id": "four"}],
        ]
        return Snapshot(0, [RowsPartition(table.full_name, rows) for rows in parts])


class Blocking(NumbersAdapter):
    """It never returns from `changes`, whatever it is told."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        (Path(self.folder) / "blocked").touch()
        threading.Event().wait()
        yield Transaction(1, [])


class DeadlyLog(SqliteLogStore):
    """A log whose first reader in another process takes that process with it."""

    def __init__(self, state_directory: Path, mark: Path, test_process: int) -> None:
        super().__init__(state_directory)
        self.open_log = partial(deadly_log, self.layout, mark, test_process)


def deadly_log(layout: StateDirectory, mark: Path, test_process: int) -> SqliteLog:
    if os.getpid() != test_process and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return SqliteLog(layout)


@dataclass(frozen=True, slots=True)
class Gated:
    """Numbers that note each reading, and from 2000 on wait in the middle for the file `go`."""

    numbers: Numbers

    @property
    def table(self) -> str:
        return self.numbers.table

    def rows(self) -> Iterable[Row]:
        folder, first = Path(self.numbers.folder), self.numbers.first
        with (folder / f"read-{first}").open("a") as file:
            file.write(f"{os.getpid()}\n")
        for number, row in enumerate(self.numbers.rows()):
            if number == 10 and first >= 2000:
                _wait_for(folder / "go")
            yield row


def _wait_for(order: Path) -> None:
    while not order.exists():
        threading.Event().wait(0.02)


class Resumable(NumbersAdapter):
    """Its snapshot can be read again by a later process, until it is closed."""

    def snapshot(self) -> Snapshot:
        folder = Path(self.folder)
        (folder / "copy").touch()
        with (folder / "snapshots").open("a") as file:
            file.write("taken\n")
        parts = [Gated(Numbers(start, start + 1000, self.folder)) for start in range(0, 4000, 1000)]
        return Snapshot(0, parts, close=partial((folder / "copy").unlink, True), can_resume=(folder / "copy").exists)


@dataclass(frozen=True, slots=True)
class BadAtEnd:
    """Gated numbers, then a row that does not fit."""

    gated: Gated

    @property
    def table(self) -> str:
        return self.gated.table

    def rows(self) -> Iterable[Row]:
        yield from self.gated.rows()
        yield {"id": f"bad {self.gated.numbers.first}", "name": "wrong"}


class ResumableWithBadRows(Resumable):
    """One row of each partition does not fit."""

    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        return replace(snapshot, partitions=[BadAtEnd(part) for part in snapshot.partitions if isinstance(part, Gated)])


class Raising(NumbersAdapter):
    """Its store hangs up until the file `mended` is there."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        if not (Path(self.folder) / "mended").exists():
            hang_up()
        return super().changes(after)


class Backwards(NumbersAdapter):
    """Its third transaction claims to come before the second."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for position, watermark in ((1, "a10000000001"), (2, "a10000000003"), (3, "a10000000002")):
            yield Transaction(position, [Insert("item", {"id": 5000 + position, "name": "late"})], watermark=watermark)


@dataclass(frozen=True, slots=True)
class Cramped:
    """Numbers whose process may write only small files until the file `room` is there."""

    numbers: Numbers

    @property
    def table(self) -> str:
        return self.numbers.table

    def rows(self) -> Iterable[Row]:
        room = (Path(self.numbers.folder) / "room").exists()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY if room else 1000, resource.RLIM_INFINITY))
        return self.numbers.rows()


class FullDisk(NumbersAdapter):
    """Its tasks find the disk full."""

    def snapshot(self) -> Snapshot:
        return Snapshot(0, [Cramped(Numbers(start, start + 1000, self.folder)) for start in range(0, 4000, 1000)])
