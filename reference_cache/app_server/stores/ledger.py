"""Mutators over a store that cannot hold the consumer's tables: confirmations go to a ledger file beside it.

The endpoint follows the file (`changesource serve … --ledger FILE`) and sends each confirmation at or behind the
position its mutator reports, never before. A mutator writes through `tx.target`, whatever the application uses to
reach its store, and then says where that is in the store's history, in the positions of the store's adapter:

    position = await tx.target.commit(…)
    tx.wrote_at(position)

Store and ledger are two: if the application dies between them, the mutation is pushed and done again. So a mutator
should bear being repeated; `tx.mutation` is the same each time. For the same reason nothing is undone when it raises:
it should refuse before it writes. A target that is away is a `StoreUnavailable`, which keeps the mutation with the
client; everything else that is raised refuses it.
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
from reference_cache.app_server.stores.sqlite_thread import SqliteThread
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
    """A mutator of a ledger's store that did not say where it wrote: its confirmation could overtake its data."""


class LedgerTransaction(Generic[Target]):
    """The `tx` of mutators, and what is to be appended when they are done."""

    def __init__(self, client: ClientKey, target: Target, last: int) -> None:
        self.target = target
        self.client = client
        self.last = last
        self.taken: int | None = None
        self.result: dict[str, Any] | None = None
        self.positions: list[Any] | None = None
        self.seen: CleanUp | None = None

    @property
    def tx(self) -> LedgerTransaction[Target]:
        """Itself."""
        return self

    @property
    def mutation(self) -> str:
        """What names this mutation, the same whenever it is tried."""
        return f"{self.client.group_id}/{self.client.client_id}/{self.taken}"

    def wrote_at(self, position: Any) -> None:
        """The data is in the store at this position; with several, all are waited for."""
        self.positions = [*(self.positions or ()), position]

    def wrote_nothing(self) -> None:
        """There is no data to wait for."""
        self.positions = self.positions or []

    async def next_mutation_id(self) -> int:
        """The client's next id, taken when the transaction ends."""
        self.taken = self.last + 1
        return self.taken

    async def record_result(self, mutation_id: int, result: dict[str, Any]) -> None:
        """Keep a refusal; there is nothing it could overtake."""
        self.result = result
        self.wrote_nothing()

    async def delete_results(self, wanted: CleanUp) -> None:
        """Forget results when the transaction ends."""
        self.seen = wanted


class LedgerStore(Generic[Target]):
    """A store reached through `target`, and the ledger at `path`. `close` when the application ends."""

    def __init__(self, path: str | PathLike[str], target: Target, *, schema: str = DEFAULT_SCHEMA) -> None:
        self._run = SqliteThread(path)
        self._path = path
        self._target = target
        self._schema = schema
        self._turns: WeakValueDictionary[ClientKey, asyncio.Lock] = WeakValueDictionary()
        self._run.now(self._create)

    @asynccontextmanager
    async def transaction(self, client: ClientKey) -> AsyncIterator[LedgerTransaction[Target]]:
        """One of a client at a time; those of different clients run beside each other."""
        if client.schema != self._schema:
            raise StoreUnavailable(f"the ledger {self._path} is for {self._schema}, not for {client.schema}")
        turn = self._turns.setdefault(client, asyncio.Lock())
        async with turn:
            last = await self._safely(lambda db: _last(db, client))
            transaction = LedgerTransaction(client, self._target, last)
            yield transaction
            if transaction.taken is not None and transaction.positions is None:
                raise NothingReported("the mutator called neither tx.wrote_at(position) nor tx.wrote_nothing()")
            await self._safely(lambda db: _append(db, transaction))

    def is_transient(self, error: Exception) -> bool:
        """What a mutator did is not undone, so it is not tried again from here."""
        return False

    def close(self) -> None:
        """Let go of the ledger."""
        self._run.close()

    async def _safely(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What fails in the ledger is no refusal: the data may be written, so the mutation must come again."""
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
    found = db.execute(_LAST, (client.group_id, client.client_id)).fetchone()
    return int(found[0]) if found else 0


def _append(db: sqlite3.Connection, transaction: LedgerTransaction[Any]) -> None:
    """All of a transaction's entries, in one durable commit."""
    db.execute("BEGIN IMMEDIATE")
    try:
        if transaction.taken is not None:
            _confirm(db, transaction, transaction.taken)
        if transaction.seen is not None:
            _forget(db, transaction.seen)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _confirm(db: sqlite3.Connection, transaction: LedgerTransaction[Any], taken: int) -> None:
    client = transaction.client
    last = _last(db, client)
    if last != transaction.last:
        # Another server of the application was quicker with the same mutation.
        raise AlreadyProcessed(client.client_id, taken, last + 1)
    key = (client.group_id, client.client_id, taken)
    db.execute(_CLIENT, key)
    result = None if transaction.result is None else values.dumps(transaction.result).decode()
    positions = values.dumps(transaction.positions or []).decode()
    db.execute(_ENTRY, ("confirm", *key, result, positions))
    if result is not None:
        db.execute("INSERT INTO unseen VALUES (?, ?, ?)", key)


def _forget(db: sqlite3.Connection, wanted: CleanUp) -> None:
    if isinstance(wanted, CleanUpMany):
        clients, up_to = wanted.client_ids, _ALL
    else:
        clients, up_to = [wanted.client_id], wanted.up_to_mutation_id
    for client in clients:
        for (mutation,) in db.execute(_UNSEEN, (wanted.client_group_id, client, up_to)).fetchall():
            key = (wanted.client_group_id, client, mutation)
            db.execute(_SEEN, key)
            db.execute(_ENTRY, ("forget", *key, None, "[]"))
