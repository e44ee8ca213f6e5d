"""Mutators over an upstream that cannot hold the cache's tables: confirmations go to a ledger file.

The endpoint follows the file (`changesource serve … --ledger FILE`) and sends each confirmation at or after the
position that its mutator reports, never before. A mutator writes through `tx.target`, which is the application's own
client of the upstream, and then reports the position of its write, in the positions of the upstream's adapter:

    position = await tx.target.commit(…)
    tx.wrote_at(position)

Upstream and ledger are not written atomically: if the application dies between them, the mutation is pushed and
executed again. So a mutator should be repeatable; `tx.mutation` is the same each time. For the same reason nothing is
undone when it raises: it should refuse before it writes. If the target is unreachable, raise `StoreUnavailable`, which
keeps the mutation in the client's queue; any other exception refuses it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from protocol import values
from protocol.ledger_file import DEFAULT_SCHEMA, STATEMENTS
from reference_cache.app_server.errors import AlreadyProcessed, StoreUnavailable
from reference_cache.app_server.requests import CleanUp, CleanUpMany
from reference_cache.app_server.stores.connection_thread import sqlite_thread
from reference_cache.app_server.stores.store import ClientKey

_LAST = "SELECT last_mutation FROM client WHERE client_group = ? AND client = ?"
_CLIENT = (
    "INSERT INTO client VALUES (?, ?, ?) "
    "ON CONFLICT (client_group, client) DO UPDATE SET last_mutation = excluded.last_mutation"
)
_ENTRY = "INSERT INTO entry (kind, client_group, client, mutation, result, positions) VALUES (?, ?, ?, ?, ?, ?)"
_UNSEEN = "SELECT mutation FROM unseen WHERE client_group = ? AND client = ? AND mutation <= ? ORDER BY mutation"
_SEEN = "DELETE FROM unseen WHERE client_group = ? AND client = ? AND mutation = ?"
_ALL = 2**63 - 1

Target = TypeVar("Target")
T = TypeVar("T")


class NothingReported(RuntimeError):
    """A mutator reported no position, so its confirmation could overtake its data."""


class LedgerTransaction(Generic[Target]):
    """The `tx` of mutators. It collects the ledger entries, which are appended when the mutator has returned."""

    def __init__(self, client: ClientKey, target: Target, last: int) -> None:
        self.target = target
        self.client = client
        self.last = last
        # The mutation id to confirm; set by `next_mutation_id`.
        self.mutation_id: int | None = None
        # The error of a refused mutation; set by `record_result`.
        self.result: dict[str, Any] | None = None
        # What the mutator reported; None until it calls `wrote_at` or `wrote_nothing`.
        self.positions: list[Any] | None = None
        # The results to delete; set by `delete_results`.
        self.clean_up: CleanUp | None = None

    @property
    def tx(self) -> LedgerTransaction[Target]:
        return self

    @property
    def mutation(self) -> str:
        """Identifies this mutation; the same at every attempt."""
        return f"{self.client.group_id}/{self.client.client_id}/{self.mutation_id}"

    def wrote_at(self, position: Any) -> None:
        """Report that data was written at this position; after several calls, the confirmation waits for all."""
        self.positions = [*(self.positions or ()), position]

    def wrote_nothing(self) -> None:
        """Report that no data was written."""
        self.positions = self.positions or []

    async def next_mutation_id(self) -> int:
        """The client's next mutation id; it becomes durable when the transaction ends."""
        self.mutation_id = self.last + 1
        return self.mutation_id

    async def record_result(self, mutation_id: int, result: dict[str, Any]) -> None:
        """Record an error; there is no data that it could overtake."""
        self.result = result
        self.wrote_nothing()

    async def delete_results(self, clean_up: CleanUp) -> None:
        """Delete results when the transaction ends."""
        self.clean_up = clean_up


class LedgerStore(Generic[Target]):
    """Confirms mutations in the ledger at `path`; `target` becomes `tx.target`. Call `close` at the end."""

    def __init__(self, path: str | PathLike[str], target: Target, *, schema: str = DEFAULT_SCHEMA) -> None:
        self._run = sqlite_thread(path)
        self._path = path
        self._target = target
        self._schema = schema
        # One lock per client with an open transaction; an entry goes when no transaction holds its lock.
        self._locks: WeakValueDictionary[ClientKey, asyncio.Lock] = WeakValueDictionary()
        self._run.now(self._create)

    @asynccontextmanager
    async def transaction(self, client: ClientKey) -> AsyncIterator[LedgerTransaction[Target]]:
        """A transaction; those of one client run one at a time, those of different clients concurrently."""
        if client.schema != self._schema:
            raise StoreUnavailable(f"the ledger {self._path} is for {self._schema}, not for {client.schema}")
        lock = self._locks.setdefault(client, asyncio.Lock())
        async with lock:
            last = await self._safely(lambda db: _last(db, client))
            transaction = LedgerTransaction(client, self._target, last)
            yield transaction
            if transaction.mutation_id is not None and transaction.positions is None:
                raise NothingReported("the mutator called neither tx.wrote_at(position) nor tx.wrote_nothing()")
            await self._safely(lambda db: _append(db, transaction))

    def is_transient(self, error: Exception) -> bool:
        """Never: a mutator's writes are not undone, so it must not be repeated without the client's push."""
        return False

    def close(self) -> None:
        self._run.close()

    async def _safely(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Turn ledger errors into `StoreUnavailable`: data may be written, so the mutation must be pushed again."""
        try:
            return await self._run(work)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the ledger {self._path} could not be written: {error}") from error

    def _create(self, db: sqlite3.Connection) -> None:
        for statement in STATEMENTS:
            db.execute(statement, (self._schema,) if "?" in statement else ())
        (schema,) = db.execute("SELECT schema FROM ledger").fetchone()
        if schema != self._schema:
            raise ValueError(f"the ledger {self._path} is for {schema}, not for {self._schema}")


def _last(db: sqlite3.Connection, client: ClientKey) -> int:
    row = db.execute(_LAST, (client.group_id, client.client_id)).fetchone()
    return int(row[0]) if row else 0


def _append(db: sqlite3.Connection, transaction: LedgerTransaction[Any]) -> None:
    """Append all entries of a transaction in one durable commit."""
    db.execute("BEGIN IMMEDIATE")
    try:
        if transaction.mutation_id is not None:
            _confirm(db, transaction, transaction.mutation_id)
        if transaction.clean_up is not None:
            _forget(db, transaction.clean_up)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _confirm(db: sqlite3.Connection, transaction: LedgerTransaction[Any], mutation_id: int) -> None:
    client = transaction.client
    last = _last(db, client)
    if last != transaction.last:
        # Another server of the application has confirmed the same mutation meanwhile.
        raise AlreadyProcessed(client.client_id, mutation_id, last + 1)
    key = (client.group_id, client.client_id, mutation_id)
    db.execute(_CLIENT, key)
    result = None if transaction.result is None else values.dumps(transaction.result).decode()
    positions = values.dumps(transaction.positions or []).decode()
    db.execute(_ENTRY, ("confirm", *key, result, positions))
    if result is not None:
        db.execute("INSERT INTO unseen VALUES (?, ?, ?)", key)


def _forget(db: sqlite3.Connection, clean_up: CleanUp) -> None:
    if isinstance(clean_up, CleanUpMany):
        clients, up_to = clean_up.client_ids, _ALL
    else:
        clients, up_to = [clean_up.client_id], clean_up.up_to_mutation_id
    for client in clients:
        for (mutation,) in db.execute(_UNSEEN, (clean_up.client_group_id, client, up_to)).fetchall():
            key = (clean_up.client_group_id, client, mutation)
            db.execute(_SEEN, key)
            db.execute(_ENTRY, ("forget", *key, None, "[]"))
