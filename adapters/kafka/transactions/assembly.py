"""Transactions of the source, put together from records that lie in many partitions. Pure: no clock, no I/O.

Debezium writes each change with its transaction's id and its place in it (`total_order`), and to a topic of its own
where each transaction ends and how many changes it has by collection. `Assembler` is told both, in any interleaving,
and releases a transaction when its END has come and all of its changes are there: in the order of the ENDs, changes by
`total_order`. A change that comes twice counts once; one of a transaction that was released is passed over. A record of
no transaction is released by itself, after everything that came before it in its partition.

What waits is bounded: changes go to files when there are many (`spool`), and so many transactions and records of none
may wait as the user allows; one more is an error that names what they wait for.

It also knows where reading must go on so that nothing is lost and nothing comes twice (`place`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

from adapters.kafka.transactions.spool import Entry, Orders, Spool
from changesource_sdk import AdapterError, Change

Partition: TypeAlias = tuple[str, int]
REMEMBERED = 10_000
"""Ids of released transactions that are kept to recognise changes that come again; whoever starts again reads as many
records of the transaction topic from before its place.
"""
MOST_BEHIND = 10_000
"""ENDs that are remembered for `Place.ended_from`; beyond that neighbours are taken together."""


class Released(NamedTuple):
    """A whole transaction of `size` changes; `id` is None for a record of no transaction.

    `entries`, with the changes in order, can be read once, before anything else is asked for.
    """

    id: str | None
    entries: Iterable[Entry]
    size: int
    time_ms: float | None


class Place(NamedTuple):
    """Where to read on: see `position.Vector`.

    `starts` is where reading begins in each partition, `read` how far it went before and `passed` up to where records
    of no transaction were passed on; in the transaction topic all before `transactions` was passed on, and ENDs of what
    lies behind `starts` begin at `ended_from`.
    """

    starts: Mapping[Partition, int]
    read: Mapping[Partition, int]
    passed: Mapping[Partition, int]
    transactions: int = 0
    ended_from: int = 0


@dataclass(slots=True)
class _Open:
    """A transaction that is not released: the places in it that are taken, `counts` of those by topic."""

    orders: Orders = field(default_factory=Orders)
    changes: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    last: dict[Partition, int] = field(default_factory=dict)
    wanted: Mapping[str, int] | None = None
    since: float = 0.0

    def lacks(self) -> dict[str, int]:
        """How many changes are still to come, by topic; all of it is unknown without an END."""
        wanted = self.wanted or {}
        return {topic: count - self.counts.get(topic, 0) for topic, count in wanted.items()}

    @property
    def is_whole(self) -> bool:
        return self.wanted is not None and all(count <= 0 for count in self.lacks().values())


@dataclass(frozen=True, slots=True)
class Stalled:
    """A transaction that waits: since when, how many records of it are there, and what is missing by topic.

    `behind`: whole transactions that ended after it and wait for it.
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
    """Invariant: what it released, in its order, is what the source committed up to some END, whole."""

    def __init__(self, place: Place, most_open: int = 50_000, spool: Spool | None = None) -> None:
        self._most_open = most_open
        self._spool = Spool() if spool is None else spool
        self._next = dict(place.starts)
        self._seen_before = {p for p, at in place.starts.items() if at < place.read.get(p, 0)}
        self._began_at = place
        self._transactions = place.transactions
        self._open: dict[str, _Open] = {}
        self._ends: deque[tuple[int, str, float | None]] = deque()
        self._unreleased: dict[Partition, deque[tuple[int, str]]] = {partition: deque() for partition in place.starts}
        self._held: dict[str, tuple[Partition, int, Released]] = {}
        self._released: dict[str, None] = {}
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
        """A record of a data topic, of so many bytes; what can be released by it."""
        self._next[partition] = offset + 1
        if self._seen_before and offset + 1 >= self._began_at.read.get(partition, 0):
            self._seen_before.discard(partition)
        if transaction is None:
            yield from self._alone(partition, offset, changes, time_ms)
        elif transaction not in self._released:
            found = self._opened(transaction, now)
            if found.orders.add(order):
                self._spool.put(transaction, (order, (*partition, offset), changes), weight)
                found.counts[partition[0]] = found.counts.get(partition[0], 0) + 1
                found.changes += len(changes)
            if partition not in found.last:
                self._unreleased.setdefault(partition, deque()).append((offset, transaction))
            found.last[partition] = offset
            if found.wanted is not None:
                yield from self._release()

    def end(
        self, offset: int, transaction: str, wanted: Mapping[str, int], time_ms: float | None = None, now: float = 0.0
    ) -> Iterator[Released]:
        """An END, with the number of changes by followed topic; what can be released by it."""
        if offset < self._transactions:
            yield from self._was_released(offset, transaction)
            return
        if transaction in self._released:
            self.begin(offset)
            return
        found = self._opened(transaction, now)
        if found.wanted is not None:
            return
        found.wanted = wanted
        self._ends.append((offset, transaction, time_ms))
        yield from self._release()

    def begin(self, offset: int) -> None:
        """A record of the transaction topic that says nothing new, as a BEGIN does."""
        if not self._ends:
            self._transactions = max(self._transactions, offset + 1)

    def follow(self, partition: Partition) -> None:
        """A partition that is new."""
        self._next.setdefault(partition, 0)

    def place(self) -> Place:
        """Where to read on after everything released so far."""
        starts = {p: (q[0][0] if (q := self._unreleased.get(p)) else at) for p, at in self._next.items()}
        while self._behind and all(last < starts[p] for p, last in self._behind[0][1].items()):
            self._behind.popleft()
        ended_from = self._behind[0][0] if self._behind else self._transactions
        began = self._began_at
        read = {p: max(at, began.read.get(p, 0)) for p, at in self._next.items()}
        passed = {p: max(at, began.passed.get(p, 0)) for p, at in self._next.items()}
        for partition, offset, _ in self._held.values():
            passed[partition] = min(passed[partition], offset)
        return Place(starts, read, passed, self._transactions, ended_from)

    def stalled(self, before: float) -> Iterator[Stalled]:
        """Transactions that have waited since before a moment, for records or an END of their own.

        One that is whole waits for another that ended before it, which is told of.
        """
        for name, found in self._open.items():
            if found.since < before and not found.is_whole:
                is_first = bool(self._ends) and self._ends[0][1] == name
                yield _stalled(name, found, self._whole_ones() if is_first else 0)

    def close(self) -> None:
        """Let go of what waits."""
        self._spool.close()

    def _whole_ones(self) -> int:
        return sum(self._open[name].is_whole for _, name, _ in self._ends)

    def _opened(self, transaction: str, now: float) -> _Open:
        found = self._open.get(transaction)
        if found is None:
            if len(self._open) >= self._most_open:
                first = self._ends[0][1] if self._ends else next(iter(self._open))
                raise _too_many(f"{len(self._open)} transactions are open", _stalled(first, self._open[first]))
            found = self._open[transaction] = _Open(since=now)
        return found

    def _release(self) -> Iterator[Released]:
        """Every transaction whose turn it is and that is whole."""
        while self._ends:
            offset, name, time_ms = self._ends[0]
            found = self._open[name]
            if not found.is_whole:
                return
            self._ends.popleft()
            self._transactions = self._ends[0][0] if self._ends else offset + 1
            entries = self._spool.take(name)
            self._remember_end(offset, self._forget(name))
            yield Released(name, entries, found.changes, time_ms)
            yield from self._release_held(found.last)

    def _was_released(self, offset: int, transaction: str) -> Iterator[Released]:
        """An END from before the place where reading began: its changes, wherever they come again, were passed on."""
        self._spool.forget(transaction)
        last = self._forget(transaction)
        if offset >= self._began_at.ended_from:
            self._remember_end(offset, {p: at - 1 for p, at in self._began_at.read.items()})
        yield from self._release_held(last)

    def _remember_end(self, offset: int, last: dict[Partition, int]) -> None:
        """An END, and up to where its changes lie; of many, two are kept as one that is no later than either."""
        self._behind.append((offset, last))
        if len(self._behind) > MOST_BEHIND:
            ends = iter(self._behind)
            self._behind = deque(_together(list(pair)) for pair in iter(lambda: tuple(islice(ends, 2)), ()))

    def _forget(self, name: str) -> dict[Partition, int]:
        """A transaction is done with; the last offset it has in each partition."""
        found = self._open.pop(name, None)
        self._released[name] = None
        # What was read before comes again, in any order to its END: until then every END counts.
        while len(self._released) > REMEMBERED and not self._seen_before:
            del self._released[next(iter(self._released))]
        last = found.last if found else {}
        for partition in last:
            self._trim(partition)
        return last

    def _trim(self, partition: Partition) -> None:
        """Let go of what was released at the front of a partition."""
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
        """Records of no transaction that waited for what was released now."""
        for partition in partitions:
            queue = self._unreleased[partition]
            while queue and queue[0][1] in self._held:
                _, _, released = self._held.pop(queue.popleft()[1])
                self._trim(partition)
                yield released


def _stalled(name: str, found: _Open, behind: int = 0) -> Stalled:
    return Stalled(name, found.since, found.orders.count, found.wanted is not None, found.lacks(), behind)


def _together(ends: list[tuple[int, dict[Partition, int]]]) -> tuple[int, dict[Partition, int]]:
    """The first of the offsets, and the last place in every partition."""
    last: dict[Partition, int] = {}
    for _, found in ends:
        for partition, offset in found.items():
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
