"""Faults between a store and the pipeline: an adapter that fails in ways that must do no harm.

- `drop`: the connection to the store fails, before a transaction or in its middle; the pipeline makes a new adapter.
- `delay`: a transaction arrives late.
- `duplicate`: a transaction is repeated at once, as by a store that delivers at least once.
- `reorder`: the partitions of a snapshot are reversed, and an old transaction is repeated after newer ones.

None of them changes the content of a transaction, or the order in which transactions arrive for the first time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from changesource_sdk.adapter import (
    Acknowledging,
    Adapter,
    Change,
    Closing,
    Position,
    Snapshot,
    Table,
    Transaction,
    UsingTables,
)
from changesource_sdk.pipeline.tail import POLL_INTERVAL_S

DELAY_S = 0.05


class Planned(Protocol):
    """A fault that knows when to fire (`plan.Fault`)."""

    def fires(self, where: str) -> bool:
        """Whether it happens now."""


class ConnectionDropped(ConnectionError):
    """What a driver raises when its connection is lost."""


class FaultyAdapter:
    """An adapter with planned faults. Everything else is passed on to the inner adapter."""

    def __init__(self, inner: Adapter, planned: Mapping[str, Planned]) -> None:
        self._inner = inner
        self._planned = planned
        # The transactions yielded so far, for `reorder`. Appended by `changes`.
        self._yielded: list[Transaction] = []
        self._closed = threading.Event()
        self.poll_interval = getattr(inner, "poll_interval", POLL_INTERVAL_S)

    def _fires(self, name: str, where: str) -> bool:
        return name in self._planned and self._planned[name].fires(where)

    def tables(self) -> Sequence[Table]:
        """Those of the inner adapter."""
        return self._inner.tables()

    def snapshot(self) -> Snapshot:
        """The snapshot, its partitions in reverse if reordering is planned."""
        snapshot = self._inner.snapshot()
        return replace(snapshot, partitions=snapshot.partitions[::-1]) if "reorder" in self._planned else snapshot

    def use_tables(self, tables: Sequence[Table]) -> None:
        """Passed on, if the inner adapter has it."""
        if isinstance(self._inner, UsingTables):
            self._inner.use_tables(tables)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The transactions, and the faults between them."""
        for transaction in self._inner.changes(after):
            where = f"position {transaction.position!r}"
            if self._fires("delay", where):
                self._closed.wait(DELAY_S)
            kept = replace(transaction, changes=tuple(transaction.changes))
            if self._fires("drop", where):
                yield replace(kept, changes=_cut(kept.changes))
                raise ConnectionDropped("the connection to the store was dropped on purpose")
            yield kept
            if self._fires("duplicate", where):
                yield kept
            if self._yielded and self._fires("reorder", where):
                yield self._yielded[0]
            self._yielded.append(kept)

    def acknowledge(self, position: Position) -> None:
        """Passed on, if the inner adapter has it."""
        if isinstance(self._inner, Acknowledging):
            self._inner.acknowledge(position)

    def close(self) -> None:
        """Passed on, if the inner adapter has it."""
        self._closed.set()
        if isinstance(self._inner, Closing):
            self._inner.close()


def _cut(changes: Iterable[Change]) -> Iterator[Change]:
    """The first half of the changes, then the error of a lost connection."""
    kept = list(changes)
    yield from kept[: len(kept) // 2]
    raise ConnectionDropped("the connection to the store was dropped on purpose, in the middle of a transaction")
