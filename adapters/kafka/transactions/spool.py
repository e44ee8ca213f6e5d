"""Changes of incomplete transactions, by their number in the transaction, in bounded memory. No clock, no broker.

`Assembler` puts in every waiting change, and takes out a transaction when it is complete. When the changes in memory
exceed a limit, all of them are written to one file, as a sorted run for each transaction; taking one out merges its
runs with what is in memory. A file is removed with the last of its runs. After a restart, the changes are read from the
topics again.
"""

from __future__ import annotations

import heapq
import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

from changesource_sdk import Change

Where: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a record."""
Entry: TypeAlias = tuple[int, Where, tuple[Change, ...]]
"""The number in the transaction (`total_order`), the record and its changes."""

LIMIT_BYTES = 32 * 1024 * 1024
"""Bytes of records whose changes are in memory; as objects they take a few times as much."""
CHUNK_ENTRIES = 256
_PAGE_BITS = 9
_order = itemgetter(0)


class Orders:
    """A set of numbers that takes a few bits for each if they are dense, as those in a transaction are."""

    __slots__ = ("_pages", "count")

    def __init__(self) -> None:
        self.count = 0  # numbers in the set
        self._pages: dict[int, bytearray] = {}  # bitmaps of 512 numbers each

    def add(self, number: int) -> bool:
        """Add a number; returns whether it is new."""
        page = self._pages.get(number >> _PAGE_BITS)
        if page is None:
            page = self._pages[number >> _PAGE_BITS] = bytearray((1 << _PAGE_BITS) // 8)
        index, bit = (number & (1 << _PAGE_BITS) - 1) >> 3, 1 << (number & 7)
        if page[index] & bit:
            return False
        page[index] |= bit
        self.count += 1
        return True


class _Run(NamedTuple):
    """Sorted entries of one transaction in a file, from byte `start` to `end`."""

    path: Path
    start: int
    end: int


class TransactionSpool:
    """Entries by transaction, for one thread. At most the limit and one entry are in memory."""

    def __init__(self, limit: int = LIMIT_BYTES, scratch: str | None = None) -> None:
        self._limit = limit
        self._scratch = scratch
        self._held: dict[str, list[Entry]] = {}  # entries in memory, by transaction
        self._weights: dict[str, int] = {}  # bytes of records in `_held`, by transaction
        self._weight = 0  # their sum
        self._runs: dict[str, list[_Run]] = {}  # what `_spill` has written, by transaction
        self._users: dict[Path, int] = {}  # runs that are left in each file; one without any is removed
        self._spilled = 0  # files written so far, for their names
        self._folder: Path | None = None  # of the files; None until the first spill

    @property
    def files(self) -> int:
        return len(self._users)

    def put(self, transaction: str, entry: Entry, weight: int) -> None:
        """Add the changes of a record of `weight` bytes."""
        self._held.setdefault(transaction, []).append(entry)
        self._weights[transaction] = self._weights.get(transaction, 0) + weight
        self._weight += weight
        if self._weight > self._limit:
            self._spill()

    def take(self, transaction: str) -> Iterable[Entry]:
        """Remove a transaction and return its entries in order, to be read once."""
        held = sorted(self._held.pop(transaction, ()), key=_order)
        self._weight -= self._weights.pop(transaction, 0)
        runs = self._runs.pop(transaction, None)
        return held if runs is None else self._merged(runs, held)

    def forget(self, transaction: str) -> None:
        """Remove a transaction."""
        self._held.pop(transaction, None)
        self._weight -= self._weights.pop(transaction, 0)
        self._remove_runs(self._runs.pop(transaction, ()))

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _spill(self) -> None:
        """Write everything in memory to a new file."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="changesource-open-", dir=self._scratch))
        self._spilled += 1
        path = self._folder / str(self._spilled)
        with path.open("wb") as file:
            for transaction, entries in self._held.items():
                start = file.tell()
                remaining = iter(sorted(entries, key=_order))
                while chunk := list(islice(remaining, CHUNK_ENTRIES)):
                    pickle.dump(chunk, file, pickle.HIGHEST_PROTOCOL)
                self._runs.setdefault(transaction, []).append(_Run(path, start, file.tell()))
        self._users[path] = len(self._held)
        self._held, self._weights, self._weight = {}, {}, 0

    def _merged(self, runs: list[_Run], held: list[Entry]) -> Iterator[Entry]:
        try:
            yield from heapq.merge(*map(_read, runs), held, key=_order)
        finally:
            self._remove_runs(runs)

    def _remove_runs(self, runs: Iterable[_Run]) -> None:
        for run in runs:
            self._users[run.path] -= 1
            if not self._users[run.path]:
                del self._users[run.path]
                run.path.unlink(missing_ok=True)


def _read(run: _Run) -> Iterator[Entry]:
    """The entries of a run, chunk by chunk. The file is closed in between: there may be many runs."""
    at = run.start
    while at < run.end:
        with run.path.open("rb") as file:
            file.seek(at)
            chunk: list[Entry] = pickle.load(file)
            at = file.tell()
        yield from chunk
