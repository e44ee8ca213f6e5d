"""An upstream with a ledger: an adapter around an adapter, which every lane runs like any other.

The consumer's tables `clients` and `mutations` are those of the ledger. A confirmation joins the transaction with the
data it confirms if it is known by then. Usually it is known a moment later, since the mutator first writes and then
confirms, and is sent as a transaction of its own after the data. It is never sent before. A position has the upstream's
position and the last entry sent, so both are resumed without gaps or duplicates.
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
from changesource_sdk.adapter_wrapper import AdapterWrapper, distance
from changesource_sdk.contract import checked_snapshot, checked_tables
from changesource_sdk.errors import ConfigurationError, position_lost
from changesource_sdk.ledger.entries import Comparing, HasReached, LedgerEntry, folded, has_reached, released
from changesource_sdk.ledger.file import LedgerFile
from changesource_sdk.ledger.reading import BackgroundReader
from changesource_sdk.system_tables import system_tables
from service_kit.logs import event, logger

POLL_S = 0.01
"""How often the ledger is polled while the upstream is silent."""
SETTLE_S = 1.0
WARN_S = 30.0

_log = logger("ledger")


@dataclass(frozen=True, slots=True)
class _LedgerPosition:
    """The upstream's position, the last entry sent, and the id of its ledger."""

    store: Position
    entry: int
    ledger: str

    def to_json(self) -> Position:
        return {"store": self.store, "entry": self.entry, "ledger": self.ledger}

    @classmethod
    def from_json(cls, position: Position) -> _LedgerPosition:
        match position:
            case {"store": store, "entry": int(entry), "ledger": str(ledger)}:
                return cls(store, entry, ledger)
        raise position_lost("the upstream was read without a ledger before")


class LedgeredAdapter(AdapterWrapper):
    """The upstream's tables and changes, with the confirmations of its mutations."""

    def __init__(self, adapter: Adapter, ledger: str) -> None:
        self.inner = adapter
        self._ledger = ledger
        # Set by `close`, from any thread; ends `changes`.
        self._closed = False
        # When the ledger was last settled, on the monotonic clock; written by `acknowledge`.
        self._settled_at = float("-inf")
        # The upstream's tables at the position of the next `changes`; written by `use_tables`, in the same thread.
        self._known_tables: Sequence[Table] = ()

    def tables(self) -> Sequence[Table]:
        """The upstream's tables and the ledger's two."""
        with closing(LedgerFile(self._ledger)) as ledger:
            return [*checked_tables(self.inner.tables()), *_tables(ledger.schema)]

    def snapshot(self) -> Snapshot:
        """The upstream's snapshot, and the confirmations of the data in it."""
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
                "an upstream with its own watermarks cannot have a ledger",
                where="ledger",
                fix="keep the consumer's tables in the upstream itself, as its adapter's page says",
            )
        declared = checked_tables(self.inner.tables() if snapshot.tables is None else snapshot.tables)
        with closing(LedgerFile(self._ledger)) as ledger:
            settled, clients, results, entries = ledger.settled_rows()
            entries_sent = released(entries, snapshot.position, self._reached())
            last = entries_sent[-1].sequence if entries_sent else settled
            position = _LedgerPosition(snapshot.position, last, ledger.id)
            tables = _tables(ledger.schema)
            changes = chain.from_iterable(entry.changes(ledger.schema) for entry in entries_sent)
            rows = folded(tables, (clients, results), changes)
        return replace(
            snapshot,
            position=position.to_json(),
            partitions=[
                *snapshot.partitions,
                *(RowsPartition(name, list(held.values())) for name, held in rows.items()),
            ],
            tables=[*declared, *tables],
        )

    def use_tables(self, tables: Sequence[Table]) -> None:
        """Keep the upstream's tables for the next `changes`, without the ledger's two."""
        with closing(LedgerFile(self._ledger)) as ledger:
            own = {table.full_name for table in _tables(ledger.schema)}
        self._known_tables = [table for table in tables if table.full_name not in own]

    def changes(self, after: Position) -> Generator[Transaction, None, None]:
        """The upstream's transactions and the confirmations, as they arrive, until the adapter is closed."""
        position = _LedgerPosition.from_json(after)
        with (
            closing(LedgerFile(self._ledger)) as ledger,
            closing(BackgroundReader(self.inner, position.store, self._known_tables)) as reader,
        ):
            _check(ledger, position)
            confirmations = _Confirmations(ledger, position.entry, self._reached())
            while not self._closed:
                transaction = reader.next(POLL_S)
                at = position.store if transaction is None else transaction.position
                due = confirmations.due(at)
                if transaction is None and not due:
                    continue
                position = _LedgerPosition(at, due[-1].sequence if due else position.entry, ledger.id)
                rows = chain.from_iterable(entry.changes(ledger.schema) for entry in due)
                if transaction is None:
                    yield Transaction(position.to_json(), rows, time.time() * 1000)
                else:
                    yield replace(transaction, position=position.to_json(), changes=chain(transaction.changes, rows))

    def acknowledge(self, position: Position) -> None:
        """Acknowledge the upstream's part, and settle the ledger at most every `SETTLE_S` seconds."""
        acknowledged = _LedgerPosition.from_json(position)
        super().acknowledge(acknowledged.store)
        now = time.monotonic()
        if now - self._settled_at >= SETTLE_S:
            self._settled_at = now
            with closing(LedgerFile(self._ledger)) as ledger:
                if acknowledged.ledger == ledger.id:
                    ledger.settle(acknowledged.entry)

    def distance(self, position: Position, head: Position) -> int | None:
        """The distance of the upstream's part; the ledger is on this host and always read at once."""
        return distance(self.inner, _LedgerPosition.from_json(position).store, head)

    def close(self) -> None:
        """Make `changes` return. May be called in any thread."""
        self._closed = True
        super().close()

    def _reached(self) -> HasReached:
        return self.inner.has_reached if isinstance(self.inner, Comparing) else has_reached


class _Confirmations:
    """The entries not sent yet. Used in the thread of `changes`, which alone writes its attributes."""

    def __init__(self, ledger: LedgerFile, sent: int, reached: HasReached) -> None:
        self._ledger = ledger
        # Sequence number of the last entry that `due` returned.
        self._sent = sent
        self._reached = reached
        # Entries after `_sent`, in order; read again when the ledger's version changes.
        self._waiting: list[LedgerEntry] = []
        # The version of the ledger that `_waiting` was read at; see `LedgerFile.version`.
        self._version = -1
        # Monotonic seconds: since when the first entry waits, or when that was last warned about.
        self._since = time.monotonic()

    def due(self, at: Position) -> list[LedgerEntry]:
        """The entries that may be sent once the upstream was read up to `at`; each is returned once."""
        version = self._ledger.version()
        if version != self._version:
            self._version = version
            self._waiting = self._ledger.after(self._sent)
        due = released(self._waiting, at, self._reached)
        if due:
            self._sent = due[-1].sequence
            del self._waiting[: len(due)]
        self._warn(at, bool(due))
        return due

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
                "a confirmation waits for the upstream",
                client=first.client,
                mutation=first.mutation,
                wanted=list(first.positions),
                at=at,
                waiting=len(self._waiting),
            )


def _check(ledger: LedgerFile, position: _LedgerPosition) -> None:
    if ledger.id != position.ledger:
        raise position_lost("the ledger is another one")
    if not ledger.settled <= position.entry <= ledger.last:
        raise position_lost("the ledger was put back to an earlier state, or the log was")


def _tables(schema: str) -> list[Table]:
    app, _, shard = schema.rpartition("_")
    return [table for table in system_tables(app, int(shard)) if table.name in ("clients", "mutations")]
