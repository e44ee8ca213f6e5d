"""Changes of transactions that are not whole yet, by their place in them, in bounded memory. No clock, no broker.

Place in the flow: `transactions.assembly.Assembler` puts every change here that waits, and takes a transaction out when
it is whole. When the changes in memory weigh more than a limit, all of them go to one file, a sorted run for each
transaction; taking one out merges its runs with what is in memory. A file is removed with the last of its runs, all of
them with the spool. What is lost with a process is read from the topics again.
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
"""The place in a transaction, and what came with it."""

LIMIT_BYTES = 32 * 1024 * 1024
"""Bytes of records whose changes are held in memory; as objects they take a few times as much."""
CHUNK_ENTRIES = 256
_PAGE_BITS = 9
_order = itemgetter(0)


class Orders:
    """A set of numbers, which costs a few bits for each where they are dense, as places in a transaction are."""

    __slots__ = ("_pages", "count")

    def __init__(self) -> None:
        self.count = 0
        self._pages: dict[int, bytearray] = {}

    def add(self, number: int) -> bool:
        """Whether the number is new."""
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


class Spool:
    """Entries by transaction. Invariant: what lies in memory weighs at most the limit and the entry put last."""

    def __init__(self, limit: int = LIMIT_BYTES, scratch: str | None = None) -> None:
        self._limit = limit
        self._scratch = scratch
        self._held: dict[str, list[Entry]] = {}
        self._weights: dict[str, int] = {}
        self._weight = 0
        self._runs: dict[str, list[_Run]] = {}
        self._users: dict[Path, int] = {}
        self._spilled = 0
        self._folder: Path | None = None

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self._users)

    def put(self, transaction: str, entry: Entry, weight: int) -> None:
        """One more change of a transaction."""
        self._held.setdefault(transaction, []).append(entry)
        self._weights[transaction] = self._weights.get(transaction, 0) + weight
        self._weight += weight
        if self._weight > self._limit:
            self._spill()

    def take(self, transaction: str) -> Iterable[Entry]:
        """All of a transaction, in order; it is forgotten here. What lay in files can be read once."""
        held = sorted(self._held.pop(transaction, ()), key=_order)
        self._weight -= self._weights.pop(transaction, 0)
        runs = self._runs.pop(transaction, None)
        return held if runs is None else self._merged(runs, held)

    def forget(self, transaction: str) -> None:
        """A transaction that is not wanted any more."""
        self._held.pop(transaction, None)
        self._weight -= self._weights.pop(transaction, 0)
        self._let_go(self._runs.pop(transaction, ()))

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _spill(self) -> None:
        """Everything in memory to a new file."""
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
            self._let_go(runs)

    def _let_go(self, runs: Iterable[_Run]) -> None:
        for run in runs:
            self._users[run.path] -= 1
            if not self._users[run.path]:
                del self._users[run.path]
                run.path.unlink(missing_ok=True)


def _read(run: _Run) -> Iterator[Entry]:
    """A run, a chunk at a time; nothing is open in between, for there may be many."""
    at = run.start
    while at < run.end:
        with run.path.open("rb") as file:
            file.seek(at)
            chunk: list[Entry] = pickle.load(file)
            at = file.tell()
        yield from chunk
