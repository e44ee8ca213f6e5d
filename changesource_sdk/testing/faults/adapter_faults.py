"""Faults between a store and the pipeline: an adapter whose reading goes wrong in ways that must do no harm.

- `drop`: the connection to the store fails, before a transaction or in its middle; the pipeline makes a new adapter.
- `delay`: a transaction comes late.
- `duplicate`: a transaction comes again at once, as from a store that delivers at least once.
- `reorder`: the partitions of a snapshot come in another order, and an old transaction comes again after newer ones.

None of them changes what is in a transaction, or the order in which transactions come first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from changesource_sdk.adapter import Acknowledging, Adapter, Change, Closing, Position, Snapshot, Table, Transaction
from changesource_sdk.pipeline.tail import POLL_INTERVAL_S

DELAY_S = 0.05


class Planned(Protocol):
    """A fault that knows when its turn has come (`plan.Fault`)."""

    def fires(self, where: str) -> bool:
        """Whether it happens now."""


class Dropped(ConnectionError):
    """What a driver raises when its connection is gone."""


class FaultyAdapter:
    """An adapter and what goes wrong with it. Everything that no fault touches is passed on."""

    def __init__(self, inner: Adapter, planned: Mapping[str, Planned]) -> None:
        self._inner = inner
        self._planned = planned
        self._given: list[Transaction] = []
        self._closed = threading.Event()
        self.poll_interval = getattr(inner, "poll_interval", POLL_INTERVAL_S)

    def _fires(self, name: str, where: str) -> bool:
        return name in self._planned and self._planned[name].fires(where)

    def tables(self) -> Sequence[Table]:
        """As they are."""
        return self._inner.tables()

    def snapshot(self) -> Snapshot:
        """The snapshot, its partitions in reverse if reordering is planned."""
        snapshot = self._inner.snapshot()
        return replace(snapshot, partitions=snapshot.partitions[::-1]) if "reorder" in self._planned else snapshot

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The transactions, and the faults between them."""
        for transaction in self._inner.changes(after):
            where = f"position {transaction.position!r}"
            if self._fires("delay", where):
                self._closed.wait(DELAY_S)
            kept = replace(transaction, changes=tuple(transaction.changes))
            if self._fires("drop", where):
                yield replace(kept, changes=_cut(kept.changes))
                raise Dropped("the connection to the store was dropped on purpose")
            yield kept
            if self._fires("duplicate", where):
                yield kept
            if self._given and self._fires("reorder", where):
                yield self._given[0]
            self._given.append(kept)

    def acknowledge(self, position: Position) -> None:
        """Passed on, if anyone wants it."""
        if isinstance(self._inner, Acknowledging):
            self._inner.acknowledge(position)

    def close(self) -> None:
        """Passed on, if anyone wants it."""
        self._closed.set()
        if isinstance(self._inner, Closing):
            self._inner.close()


def _cut(changes: Iterable[Change]) -> Iterator[Change]:
    """The first half of the changes, and then the connection is gone."""
    kept = list(changes)
    yield from kept[: len(kept) // 2]
    raise Dropped("the connection to the store was dropped on purpose, in the middle of a transaction")
