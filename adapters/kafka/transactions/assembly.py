"""Assembles the upstream's transactions from records of many partitions. Pure: no clock, no I/O except spilling.

Debezium writes each change with the id of its transaction and its number in it (`total_order`). To the transaction
topic it writes an END for each transaction, with the number of changes by collection. `Assembler` gets both in any
interleaving. It releases a transaction when its END and all of its changes have arrived: transactions in the order of
their ENDs, changes by `total_order`. A change that arrives twice counts once; one of a released transaction is skipped.
A record of no transaction is released by itself, after everything that came before it in its partition.

Memory is bounded: many changes are spilled to files (`spool`), and the setting `open_limit` bounds the number of
waiting transactions and records; one more is an error that names the transaction they wait for.

`Assembler.position` is where reading must continue so that nothing is lost and nothing is released twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

from adapters.kafka.transactions.spool import Entry, Orders, TransactionSpool
from changesource_sdk import AdapterError, Change

Partition: TypeAlias = tuple[str, int]
REMEMBERED = 10_000
"""Ids of released transactions that are kept to recognise changes that arrive again. A restart reads as many records of
the transaction topic before its position.
"""
MOST_BEHIND = 10_000
"""ENDs that are remembered for `AssemblerPosition.ended_from`; beyond that, neighbours are merged."""


class Released(NamedTuple):
    """A complete transaction of `size` changes; `id` is None for a record of no transaction.

    `entries` has the changes in order. It can be read once, before the next call of the assembler.
    """

    id: str | None
    entries: Iterable[Entry]
    size: int
    time_ms: float | None


class AssemblerPosition(NamedTuple):
    """Where to continue reading: see `position.KafkaPosition`.

    `starts` is where reading begins in each partition, `read` how far it was read before, and `passed` up to where
    records of no transaction were passed on. In the transaction topic, everything before `transactions` was passed on,
    and the ENDs of transactions with records after `starts` begin at `ended_from`.
    """

    starts: Mapping[Partition, int]
    read: Mapping[Partition, int]
    passed: Mapping[Partition, int]
    transactions: int = 0
    ended_from: int = 0


@dataclass(slots=True)
class _Open:
    """A transaction that is not released. The assembler writes all fields."""

    orders: Orders = field(default_factory=Orders)  # `total_order` of the records that have arrived
    changes: int = 0  # of those records
    counts: dict[str, int] = field(default_factory=dict)  # records that have arrived, by topic
    last: dict[Partition, int] = field(default_factory=dict)  # its last offset in each partition
    wanted: Mapping[str, int] | None = None  # records by topic, according to the END; None before it
    since: float = 0.0  # when its first record arrived, in seconds of the caller's clock

    def lacks(self) -> dict[str, int]:
        """How many records are missing, by topic; empty before the END."""
        wanted = self.wanted or {}
        return {topic: count - self.counts.get(topic, 0) for topic, count in wanted.items()}

    @property
    def is_whole(self) -> bool:
        return self.wanted is not None and all(count <= 0 for count in self.lacks().values())


@dataclass(frozen=True, slots=True)
class Stalled:
    """A waiting transaction: since when, how many records of it have arrived, and what is missing by topic.

    `behind`: complete transactions that ended after it and wait for it.
    """

    id: str
    since: float
    records: int
    has_ended: bool
    lacks: Mapping[str, int]
    behind: int = 0

    def __str__(self) -> str:
        there = f"{self.records} {'record' if self.records == 1 else 'records'} of transaction {self.id}"
        if not self.has_ended:
            return f"{there} came, and its END has not"
        missing = ", ".join(f"{count} of {topic}" for topic, count in self.lacks.items() if count > 0)
        waiting = f"; whole transactions that wait for it: {self.behind}" if self.behind else ""
        return f"{there} and its END came, and its other records have not: {missing}{waiting}"


class Assembler:
    """Used by one thread. Invariant: what it has released is exactly what the upstream committed up to some END."""

    def __init__(
        self, start: AssemblerPosition, most_open: int = 50_000, spool: TransactionSpool | None = None
    ) -> None:
        self._most_open = most_open
        self._spool = TransactionSpool() if spool is None else spool
        # The next offset to read in each partition; `change` updates it.
        self._next = dict(start.starts)
        # Partitions that are still read in a part that was read before the restart; they are removed as they pass it.
        self._seen_before = {p for p, at in start.starts.items() if at < start.read.get(p, 0)}
        self._began_at = start
        # Every transaction with an END before this offset of the transaction topic is released.
        self._transactions = start.transactions
        self._open: dict[str, _Open] = {}  # transactions that are not released, by id
        # ENDs of open transactions in the order of commits: offset, id, time. Only the first can be released next.
        self._ends: deque[tuple[int, str, float | None]] = deque()
        # For each partition, the first offset of each open transaction and the held records, in offset order.
        self._unreleased: dict[Partition, deque[tuple[int, str]]] = {partition: deque() for partition in start.starts}
        # Records of no transaction that wait for an open one before them, by a name made of partition and offset.
        self._held: dict[str, tuple[Partition, int, Released]] = {}
        self._released: dict[str, None] = {}  # ids of released transactions, the oldest first, at most REMEMBERED
        # ENDs of released transactions, with their last offsets, that may have records after the position's starts.
        self._behind: deque[tuple[int, dict[Partition, int]]] = deque()

    def change(
        self,
        partition: Partition,
        offset: int,
        changes: tuple[Change, ...],
        transaction: str | None,
        order: int = 0,
        time_ms: float | None = None,
        now: float = 0.0,
        weight: int = 0,
    ) -> Iterator[Released]:
        """Add a record of a data topic, of `weight` bytes; yields what it makes complete."""
        self._next[partition] = offset + 1
        if self._seen_before and offset + 1 >= self._began_at.read.get(partition, 0):
            self._seen_before.discard(partition)
        if transaction is None:
            yield from self._alone(partition, offset, changes, time_ms)
        elif transaction not in self._released:
            opened = self._opened(transaction, now)
            if opened.orders.add(order):
                self._spool.put(transaction, (order, (*partition, offset), changes), weight)
                opened.counts[partition[0]] = opened.counts.get(partition[0], 0) + 1
                opened.changes += len(changes)
            if partition not in opened.last:
                self._unreleased.setdefault(partition, deque()).append((offset, transaction))
            opened.last[partition] = offset
            if opened.wanted is not None:
                yield from self._release()

    def end(
        self, offset: int, transaction: str, wanted: Mapping[str, int], time_ms: float | None = None, now: float = 0.0
    ) -> Iterator[Released]:
        """Add an END, with the number of records by followed topic; yields what it makes complete."""
        if offset < self._transactions:
            yield from self._was_released(offset, transaction)
            return
        if transaction in self._released:
            self.begin(offset)
            return
        opened = self._opened(transaction, now)
        if opened.wanted is not None:
            return
        opened.wanted = wanted
        self._ends.append((offset, transaction, time_ms))
        yield from self._release()

    def begin(self, offset: int) -> None:
        """Note a record of the transaction topic that is not needed, such as a BEGIN."""
        if not self._ends:
            self._transactions = max(self._transactions, offset + 1)

    def follow(self, partition: Partition) -> None:
        """Add a partition."""
        self._next.setdefault(partition, 0)

    def position(self) -> AssemblerPosition:
        """Where to continue reading after everything released so far."""
        starts = {p: (q[0][0] if (q := self._unreleased.get(p)) else at) for p, at in self._next.items()}
        while self._behind and all(last < starts[p] for p, last in self._behind[0][1].items()):
            self._behind.popleft()
        ended_from = self._behind[0][0] if self._behind else self._transactions
        began = self._began_at
        read = {p: max(at, began.read.get(p, 0)) for p, at in self._next.items()}
        passed = {p: max(at, began.passed.get(p, 0)) for p, at in self._next.items()}
        for partition, offset, _ in self._held.values():
            passed[partition] = min(passed[partition], offset)
        return AssemblerPosition(starts, read, passed, self._transactions, ended_from)

    def stalled(self, before: float) -> Iterator[Stalled]:
        """Transactions that have waited since before a moment for records or their END.

        A complete transaction waits for another that ended before it; only that other one is yielded.
        """
        for name, opened in self._open.items():
            if opened.since < before and not opened.is_whole:
                is_first = bool(self._ends) and self._ends[0][1] == name
                yield _stalled(name, opened, self._whole_ones() if is_first else 0)

    def close(self) -> None:
        """Remove the files."""
        self._spool.close()

    def _whole_ones(self) -> int:
        return sum(self._open[name].is_whole for _, name, _ in self._ends)

    def _opened(self, transaction: str, now: float) -> _Open:
        opened = self._open.get(transaction)
        if opened is None:
            if len(self._open) >= self._most_open:
                first = self._ends[0][1] if self._ends else next(iter(self._open))
                raise _too_many(f"{len(self._open)} transactions are open", _stalled(first, self._open[first]))
            opened = self._open[transaction] = _Open(since=now)
        return opened

    def _release(self) -> Iterator[Released]:
        """Release transactions in the order of their ENDs, up to the first that is incomplete."""
        while self._ends:
            offset, name, time_ms = self._ends[0]
            complete = self._open[name]
            if not complete.is_whole:
                return
            self._ends.popleft()
            self._transactions = self._ends[0][0] if self._ends else offset + 1
            entries = self._spool.take(name)
            self._remember_end(offset, self._forget(name))
            yield Released(name, entries, complete.changes, time_ms)
            yield from self._release_held(complete.last)

    def _was_released(self, offset: int, transaction: str) -> Iterator[Released]:
        """An END from before the start: its changes, if they arrive again, were passed on already."""
        self._spool.forget(transaction)
        last = self._forget(transaction)
        if offset >= self._began_at.ended_from:
            self._remember_end(offset, {p: at - 1 for p, at in self._began_at.read.items()})
        yield from self._release_held(last)

    def _remember_end(self, offset: int, last: dict[Partition, int]) -> None:
        """Note an END and the last offsets of its transaction.

        If there are too many, merge pairs into the earlier END.
        """
        self._behind.append((offset, last))
        if len(self._behind) > MOST_BEHIND:
            ends = iter(self._behind)
            self._behind = deque(_together(list(pair)) for pair in iter(lambda: tuple(islice(ends, 2)), ()))

    def _forget(self, name: str) -> dict[Partition, int]:
        """Remove a transaction; returns its last offset in each partition."""
        forgotten = self._open.pop(name, None)
        self._released[name] = None
        # While records are read again after a restart, they may arrive after their END: keep all ids until then.
        while len(self._released) > REMEMBERED and not self._seen_before:
            del self._released[next(iter(self._released))]
        last = forgotten.last if forgotten else {}
        for partition in last:
            self._trim(partition)
        return last

    def _trim(self, partition: Partition) -> None:
        """Remove released entries from the front of a partition's queue."""
        queue = self._unreleased[partition]
        while queue and queue[0][1] not in self._open and queue[0][1] not in self._held:
            queue.popleft()

    def _alone(
        self, partition: Partition, offset: int, changes: tuple[Change, ...], time_ms: float | None
    ) -> Iterator[Released]:
        if not changes or offset < self._began_at.passed.get(partition, 0):
            return
        released = Released(None, [(0, (*partition, offset), changes)], len(changes), time_ms)
        queue = self._unreleased.setdefault(partition, deque())
        if queue:
            if len(self._held) >= self._most_open:
                first = next(name for _, name in queue if name in self._open)
                waiting = f"{len(self._held)} records of no transaction wait behind open ones"
                raise _too_many(waiting, _stalled(first, self._open[first]))
            name = f"{partition[0]}[{partition[1]}]@{offset}"
            self._held[name] = partition, offset, released
            queue.append((offset, name))
        else:
            yield released

    def _release_held(self, partitions: Iterable[Partition]) -> Iterator[Released]:
        """Release records of no transaction that waited for a transaction in these partitions."""
        for partition in partitions:
            queue = self._unreleased[partition]
            while queue and queue[0][1] in self._held:
                _, _, released = self._held.pop(queue.popleft()[1])
                self._trim(partition)
                yield released


def _stalled(name: str, opened: _Open, behind: int = 0) -> Stalled:
    return Stalled(name, opened.since, opened.orders.count, opened.wanted is not None, opened.lacks(), behind)


def _together(ends: list[tuple[int, dict[Partition, int]]]) -> tuple[int, dict[Partition, int]]:
    """The first of the END offsets, and the last offset in every partition."""
    last: dict[Partition, int] = {}
    for _, offsets in ends:
        for partition, offset in offsets.items():
            last[partition] = max(offset, last.get(partition, 0))
    return ends[0][0], last


def _too_many(what: str, first: Stalled) -> AdapterError:
    return AdapterError(
        "too-many-open",
        f"{what}, and no more are held; the first is waited for: {first}",
        where=f"transaction {first.id}",
        fix="see why the connector does not write what is missing; it is tried again with a growing delay. "
        "If the source really has so many at a time: --set open_limit=NUMBER",
    )
