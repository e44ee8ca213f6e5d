"""Bugs that show only in a pipeline that is a process of its own: it is killed, or its disk is full.

The store of `workshop` lives in the process of the tests. One is planted in the SQLite adapter, the other in one that
only reads, since SQLite itself reports a full disk to its readers.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

from adapters.sqlite import SqliteAdapter
from changesource_sdk.adapter import Change, Position, RowsPartition, Snapshot, Table, Transaction
from changesource_sdk.testing.conformance import Harness
from tests.changesource_sdk.testing.conformance.workshop import RightAdapter, Workshop
from tests.conformance.sqlite_harness import SqliteHarness

BLOCK = b"\0" * 65_536


class LeavesItsLock(SqliteAdapter):
    """Keeps other processes away by a file with its process id, which only `close` removes."""

    def changes(self, after: Position) -> Generator[Transaction, None, None]:
        if self._lock.exists() and not self._is_own():
            raise RuntimeError("another process follows this file")
        self._lock.write_text(str(os.getpid()))
        yield from super().changes(after)

    @property
    def _lock(self) -> Path:
        return Path(f"{self._path}.lock")

    def _is_own(self) -> bool:
        return self._lock.exists() and self._lock.read_text() == str(os.getpid())

    def close(self) -> None:
        if self._is_own():
            self._lock.unlink(missing_ok=True)
        super().close()


class FileAdapter(RightAdapter):
    """The right adapter over a file with a transaction in each line, which a process only reads."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # What was read of the file, and up to which byte; `_read` writes both.
        self._replayed = Workshop()
        self._offset = 0

    def __getstate__(self) -> dict[str, str]:
        return {"name": self._name}

    def __setstate__(self, state: dict[str, str]) -> None:
        FileAdapter.__init__(self, **state)

    @property
    def store(self) -> Workshop:
        return self._replayed

    def _read(self) -> None:
        with Path(self._name).open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._replayed.commit(pickle.loads(bytes.fromhex(line.decode())))

    def tables(self) -> Sequence[Table]:
        self._read()
        return super().tables()

    def snapshot(self) -> Snapshot:
        self._read()
        partitions = [RowsPartition(table, list(rows.values())) for table, rows in self.store.rows.items()]
        return Snapshot(self.store.last, partitions, tables=list(self.store.schema.tables.values()))

    def changes(self, after: Position) -> Iterator[Transaction]:
        self._read()
        yield from super().changes(after)

    def acknowledge(self, position: Position) -> None:
        """The file keeps everything."""


class WaitsForRoom(FileAdapter):
    """Spools each transaction to a file of its own, and waits, without reporting it, while there is no room for it."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            try:
                Path(f"{self._name}.spool").write_bytes(BLOCK)
            except OSError:
                return
            yield transaction


class FileHarness(Harness):
    adapter = FileAdapter
    lacks = ("acknowledge",)
    supports = ("schema changes",)

    def create(self, folder: Path) -> None:
        self._path = folder / "transactions"
        self._path.touch()

    def settings(self) -> Mapping[str, object]:
        return {"name": str(self._path)}

    def commit(self, changes: Sequence[Change]) -> None:
        with self._path.open("a") as file:
            file.write(f"{pickle.dumps(tuple(changes)).hex()}\n")


def harness_of(adapter: type[SqliteAdapter | FileAdapter], patience: float) -> Harness:
    """A harness for one of the adapters."""
    made = FileHarness() if issubclass(adapter, FileAdapter) else SqliteHarness()
    made.adapter, made.patience = adapter, patience  # type: ignore[misc]
    return made
