"""Adapters for the Spark lanes: importable by tasks, and wrong in one way each where they say so."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Insert, Position, Row, Snapshot, Table, Transaction
from changesource_sdk.changelog.log import LogReader
from changesource_sdk.changelog.sqlite_store import SqliteStore
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
                _once(Path(self.folder) / f"kill-{self.first}", lambda: os.kill(os.getpid(), signal.SIGKILL))
                _once(Path(self.folder) / f"raise-{self.first}", _raise)
            yield {"id": number, "name": f"item {number}"}


def _raise() -> None:
    raise ConnectionError("the store hung up")


def _once(order: Path, act: object) -> None:
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
                _once(Path(self.folder) / "kill", lambda: os.kill(os.getpid(), signal.SIGKILL))
                line = str(10_000 + position)
            yield Transaction(position, [Insert("item", {"id": int(line), "name": "late"})])


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


class Blocking(NumbersAdapter):
    """It never returns from `changes`, whatever it is told."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        (Path(self.folder) / "blocked").touch()
        threading.Event().wait()
        yield Transaction(1, [])


@dataclass(frozen=True)
class DeadlyLog:
    """A log whose first reader in another process takes that process with it."""

    state: Path
    mark: Path
    test_process: int

    def open_reader(self) -> LogReader:
        if os.getpid() != self.test_process and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return SqliteStore(self.state).open_reader()
