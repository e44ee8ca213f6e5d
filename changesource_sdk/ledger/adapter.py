"""A store with a ledger beside it: an adapter around an adapter, so that every lane runs it as any other.

The consumer's tables `clients` and `mutations` are those of the ledger. A confirmation joins the transaction that shows
the data it confirms if it is known by then; usually it is a moment later, since the mutator first writes and then
confirms, and gets a transaction of its own right behind. It never comes before. Positions are the store's own
together with the last entry told, so both are resumed without gap or double.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain

from changesource_sdk.adapter import (
    Adapter,
    Position,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
)
from changesource_sdk.adapter_wrapper import AdapterWrapper
from changesource_sdk.contract import checked_snapshot, checked_tables
from changesource_sdk.errors import ConfigurationError, position_lost
from changesource_sdk.ledger.entries import Comparing, Entry, HasReached, folded, has_reached, released
from changesource_sdk.ledger.file import LedgerFile
from changesource_sdk.ledger.reading import Reading
from changesource_sdk.system_tables import system_tables
from service_kit.logs import event, logger

LOOK_S = 0.01
"""How soon a confirmation is noticed while the store is silent."""
SETTLE_S = 1.0
WARN_S = 30.0

_log = logger("ledger")


@dataclass(frozen=True, slots=True)
class _Place:
    """How far the store was read, and the last entry told, in which ledger."""

    store: Position
    entry: int
    ledger: str

    def position(self) -> Position:
        return {"store": self.store, "entry": self.entry, "ledger": self.ledger}

    @classmethod
    def at(cls, position: Position) -> _Place:
        match position:
            case {"store": store, "entry": int(entry), "ledger": str(ledger)}:
                return cls(store, entry, ledger)
        raise position_lost("the store was followed without a ledger before")


class LedgeredAdapter(AdapterWrapper):
    """The store, and the confirmations of its mutations."""

    def __init__(self, adapter: Adapter, ledger: str) -> None:
        self.inner = adapter
        self._ledger = ledger
        # Set by `close`, from any thread; ends `changes`.
        self._closed = False
        # When the ledger was last settled, on the monotonic clock; written by `acknowledge`.
        self._settled_at = float("-inf")

    def tables(self) -> Sequence[Table]:
        """The store's tables and the ledger's two."""
        with closing(LedgerFile(self._ledger)) as ledger:
            return [*checked_tables(self.inner.tables()), *_tables(ledger.schema)]

    def snapshot(self) -> Snapshot:
        """The store's snapshot, and the confirmations of what it shows."""
        snapshot = checked_snapshot(self.inner.snapshot())
        try:
            return self._with_confirmations(snapshot)
        except BaseException:
            if snapshot.close is not None:
                snapshot.close()
            raise

    def _with_confirmations(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.watermark is not None:
            raise ConfigurationError(
                "ledger-not-needed",
                "a store with watermarks of its own cannot have a ledger beside it",
                where="ledger",
                fix="keep the consumer's tables in the store itself, as its adapter's page says",
            )
        declared = checked_tables(self.inner.tables() if snapshot.tables is None else snapshot.tables)
        with closing(LedgerFile(self._ledger)) as ledger:
            settled, clients, results, entries = ledger.settled_rows()
            told = released(entries, snapshot.position, self._reached())
            place = _Place(snapshot.position, told[-1].sequence if told else settled, ledger.id)
            tables = _tables(ledger.schema)
            changes = chain.from_iterable(entry.changes(ledger.schema) for entry in told)
            rows = folded(tables, (clients, results), changes)
        return replace(
            snapshot,
            position=place.position(),
            partitions=[
                *snapshot.partitions,
                *(RowsPartition(name, list(held.values())) for name, held in rows.items()),
            ],
            tables=[*declared, *tables],
        )

    def changes(self, after: Position) -> Generator[Transaction, None, None]:
        """The store's transactions and the confirmations, as both come, until the adapter is closed."""
        place = _Place.at(after)
        with closing(LedgerFile(self._ledger)) as ledger, closing(Reading(self.inner, place.store)) as reading:
            _check(ledger, place)
            confirmations = _Confirmations(ledger, place.entry, self._reached())
            while not self._closed:
                transaction = reading.next(LOOK_S)
                at = place.store if transaction is None else transaction.position
                told = confirmations.due(at)
                if transaction is None and not told:
                    continue
                place = _Place(at, told[-1].sequence if told else place.entry, ledger.id)
                rows = chain.from_iterable(entry.changes(ledger.schema) for entry in told)
                if transaction is None:
                    yield Transaction(place.position(), rows, time.time() * 1000)
                else:
                    yield replace(transaction, position=place.position(), changes=chain(transaction.changes, rows))

    def acknowledge(self, position: Position) -> None:
        """Passed on, if the adapter wants to know; the ledger is settled now and then."""
        place = _Place.at(position)
        super().acknowledge(place.store)
        now = time.monotonic()
        if now - self._settled_at >= SETTLE_S:
            self._settled_at = now
            with closing(LedgerFile(self._ledger)) as ledger:
                if place.ledger == ledger.id:
                    ledger.settle(place.entry)

    def close(self) -> None:
        """Make `changes` return."""
        self._closed = True
        super().close()

    def _reached(self) -> HasReached:
        return self.inner.has_reached if isinstance(self.inner, Comparing) else has_reached


class _Confirmations:
    """The entries not told yet. Invariant: what `due` returned it does not return again."""

    def __init__(self, ledger: LedgerFile, told: int, reached: HasReached) -> None:
        self._ledger = ledger
        self._told = told
        self._reached = reached
        self._waiting: list[Entry] = []
        self._version = -1
        self._since = time.monotonic()

    def due(self, at: Position) -> list[Entry]:
        """Those that may be told now that the store was read up to `at`."""
        version = self._ledger.version()
        if version != self._version:
            self._version = version
            self._waiting = self._ledger.after(self._told)
        told = released(self._waiting, at, self._reached)
        if told:
            self._told = told[-1].sequence
            del self._waiting[: len(told)]
        self._warn(at, bool(told))
        return told

    def _warn(self, at: Position, moved: bool) -> None:
        now = time.monotonic()
        if moved or not self._waiting:
            self._since = now
        elif now - self._since > WARN_S:
            self._since = now
            first = self._waiting[0]
            event(
                _log,
                logging.WARNING,
                "a confirmation waits for the store",
                client=first.client,
                mutation=first.mutation,
                wanted=list(first.positions),
                at=at,
                waiting=len(self._waiting),
            )


def _check(ledger: LedgerFile, place: _Place) -> None:
    if ledger.id != place.ledger:
        raise position_lost("the ledger is another one")
    if not ledger.settled <= place.entry <= ledger.last:
        raise position_lost("the ledger was put back to an earlier state, or the log was")


def _tables(schema: str) -> list[Table]:
    app, _, shard = schema.rpartition("_")
    return [table for table in system_tables(app, int(shard)) if table.name in ("clients", "mutations")]
