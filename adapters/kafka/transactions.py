"""Transactions of the source, put together from records that lie in many partitions. Pure: no clock, no I/O.

Debezium writes each change with its transaction's id and its place in it (`total_order`), and to a topic of its own
where each transaction ends and how many changes it has by collection. `Assembler` is told both, in any interleaving,
and releases a transaction when its END has come and all of its changes are there: in the order of the ENDs, changes by
`total_order`. A change that comes twice counts once; one of a transaction that was released is passed over. A record of
no transaction is released by itself, after everything that came before it in its partition.

It also knows where reading must go on so that nothing is lost and nothing comes twice (`place`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from changesource_sdk.adapter import Change

Partition: TypeAlias = tuple[str, int]
REMEMBERED = 10_000
"""Ids of released transactions that are kept to recognise changes that come again; whoever starts again reads as many
records of the transaction topic from before its place.
"""


class Released(NamedTuple):
    """A whole transaction; `id` is None for a record of no transaction."""

    id: str | None
    changes: list[Change]
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
    """A transaction that is not released. `changes` by total order, `counts` of those by topic."""

    changes: dict[int, tuple[Change, ...]] = field(default_factory=dict)
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
    """A transaction that waits: since when, how many changes of it are there, and what is missing by topic."""

    id: str
    since: float
    changes: int
    has_ended: bool
    lacks: Mapping[str, int]

    def __str__(self) -> str:
        if not self.has_ended:
            return f"transaction {self.id} has {self.changes} changes and its END has not come"
        missing = ", ".join(f"{count} of {topic}" for topic, count in self.lacks.items() if count > 0)
        return f"transaction {self.id} has ended with {self.changes} changes there and others missing: {missing}"


class Assembler:
    """Invariant: what it released, in its order, is what the source committed up to some END, whole."""

    def __init__(self, place: Place) -> None:
        self._next = dict(place.starts)
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
    ) -> Iterator[Released]:
        """A record of a data topic; what can be released by it."""
        self._next[partition] = offset + 1
        if transaction is None:
            yield from self._alone(partition, offset, changes, time_ms)
        elif transaction not in self._released:
            found = self._opened(transaction, now)
            if order not in found.changes:
                found.changes[order] = changes
                found.counts[partition[0]] = found.counts.get(partition[0], 0) + 1
            found.last[partition] = offset
            self._unreleased.setdefault(partition, deque()).append((offset, transaction))
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
        """Transactions that have waited since before a moment."""
        for name, found in self._open.items():
            if found.since < before:
                yield Stalled(name, found.since, len(found.changes), found.wanted is not None, found.lacks())

    def _opened(self, transaction: str, now: float) -> _Open:
        found = self._open.get(transaction)
        if found is None:
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
            self._behind.append((offset, self._forget(name)))
            changes = [change for order in sorted(found.changes) for change in found.changes[order]]
            yield Released(name, changes, time_ms)
            yield from self._release_held(found.last)

    def _was_released(self, offset: int, transaction: str) -> Iterator[Released]:
        """An END from before the place where reading began: its changes, wherever they come again, were passed on."""
        last = self._forget(transaction)
        if offset >= self._began_at.ended_from:
            self._behind.append((offset, {p: at - 1 for p, at in self._began_at.read.items()}))
        yield from self._release_held(last)

    def _forget(self, name: str) -> dict[Partition, int]:
        """A transaction is done with; the last offset it has in each partition."""
        found = self._open.pop(name, None)
        self._released[name] = None
        if len(self._released) > REMEMBERED:
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
        released = Released(None, list(changes), time_ms)
        queue = self._unreleased.setdefault(partition, deque())
        if queue:
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
