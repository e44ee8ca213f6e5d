"""Mutators over a SQLite database that the SQLite adapter reads.

The cache's tables are in the database under their dotted names, `zero_0.clients` and `zero_0.mutations`, and are
replicated like any other. Create them (`create_system_tables`) before the endpoint first reads the database: the
endpoint replaces missing ones by empty tables of its own, and then no confirmation would ever arrive.

SQLite has one writer at a time, so the store has one connection, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any

from reference_cache.app_server.errors import StoreUnavailable
from reference_cache.app_server.stores.confirming_transaction import ConfirmingTransaction
from reference_cache.app_server.stores.connection_thread import ConnectionThread, sqlite_thread
from reference_cache.app_server.stores.dialect import SqliteDialect
from reference_cache.app_server.stores.row_statements import RowStatements
from reference_cache.app_server.stores.sql_transaction import Parameters
from reference_cache.app_server.stores.store import ClientKey
from reference_cache.zql.schema import Schema
from service_kit.sqlite import quoted

_CLIENT = '"clientGroupID" TEXT NOT NULL, "clientID" TEXT NOT NULL'
_CLIENTS = f'({_CLIENT}, "lastMutationID" INTEGER NOT NULL, "userID" TEXT, PRIMARY KEY ("clientGroupID", "clientID"))'
_MUTATIONS = (
    f'({_CLIENT}, "mutationID" INTEGER NOT NULL, mutation JSON, result JSON, '
    'PRIMARY KEY ("clientGroupID", "clientID", "mutationID"))'
)


class SqliteTransaction(ConfirmingTransaction):
    """The `tx` of mutators."""

    missing_table_errors = (sqlite3.OperationalError,)
    missing_table_text = "no such table"
    missing_table_fix = "call create_system_tables() before the endpoint first starts"

    def __init__(self, run: ConnectionThread[sqlite3.Connection], statements: RowStatements, client: ClientKey) -> None:
        super().__init__(statements, client)
        self._run = run

    async def execute(self, statement: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        return await self._run(lambda db: _fetched(db.execute(statement, parameters)))


class SqliteStore:
    """Transactions on a database file, one at a time. Call `close` when the application ends."""

    def __init__(self, path: str | PathLike[str], schema: Schema) -> None:
        self._run = sqlite_thread(path)
        self._statements = RowStatements(schema, SqliteDialect())
        self._turn = asyncio.Lock()

    def create_system_tables(self, app_id: str = "zero", shard: int = 0) -> None:
        """Create the tables that confirm mutations, unless they exist; blocks."""
        self._run.now(lambda db: create_system_tables(db, app_id, shard))

    @asynccontextmanager
    async def transaction(self, client: ClientKey) -> AsyncIterator[SqliteTransaction]:
        """A transaction that takes the write lock at its beginning, so that it never fails to upgrade a read lock."""
        async with self._turn:
            try:
                await self._run(lambda db: db.execute("BEGIN IMMEDIATE"))
            except sqlite3.Error as error:
                raise StoreUnavailable(f"Failed to open database transaction: {error}") from error
            try:
                yield SqliteTransaction(self._run, self._statements, client)
                await self._commit()
            except BaseException:
                # In the connection's thread, so after a statement that is still running; shielded, so that a
                # cancelled caller leaves no transaction open.
                await asyncio.shield(self._run(_roll_back))
                raise

    async def _commit(self) -> None:
        """With a rollback journal, a reader can make COMMIT fail; that must not refuse the mutation."""
        try:
            await self._run(lambda db: db.execute("COMMIT"))
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"Failed to commit database transaction: {error}") from error

    def is_transient(self, error: Exception) -> bool:
        """Never: the write lock is held before a mutator runs."""
        return False

    def close(self) -> None:
        self._run.close()


def create_system_tables(db: sqlite3.Connection, app_id: str = "zero", shard: int = 0) -> None:
    """Create the tables that confirm mutations, unless they exist."""
    for name, columns in (("clients", _CLIENTS), ("mutations", _MUTATIONS)):
        db.execute(f"CREATE TABLE IF NOT EXISTS {quoted(f'{app_id}_{shard}.{name}')} {columns}")


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _fetched(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    if cursor.description is None:
        return []
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
