"""Mutators over a Postgres database, with the cache's tables in their official layout.

The Postgres adapter (or the official zero-cache) creates `{app}_{shard}.clients` and `.mutations`. They are written as
the official push processor writes them, so both can serve one database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Json

from protocol import values
from reference_cache.app_server.errors import StoreUnavailable
from reference_cache.app_server.stores.confirming_transaction import ConfirmingTransaction
from reference_cache.app_server.stores.dialect import StandardDialect
from reference_cache.app_server.stores.row_statements import RowStatements
from reference_cache.app_server.stores.sql_transaction import Parameters
from reference_cache.app_server.stores.store import ClientKey
from reference_cache.zql.schema import Schema

CONNECTIONS = 8

_TRANSIENT = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)

Connection: TypeAlias = psycopg.AsyncConnection[DictRow]


class PostgresDialect(StandardDialect):
    """Postgres, by psycopg: JSON parameters have a type of their own."""

    mark = "%s"

    def quote(self, name: str) -> str:
        # `%` would be read as a placeholder by the driver.
        return super().quote(name).replace("%", "%%")

    def json(self, value: object) -> Json:
        return Json(value, dumps=values.dumps)


class PostgresTransaction(ConfirmingTransaction):
    """The `tx` of mutators. Once it has the mutation id, its row lock makes other transactions of the client wait."""

    missing_table_errors = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
    missing_table_fix = "start the change source once, it makes these tables"

    def __init__(self, connection: Connection, statements: RowStatements, client: ClientKey) -> None:
        super().__init__(statements, client)
        self.connection = connection

    async def execute(self, statement: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        cursor = await self.connection.execute(statement.encode(), parameters or None)
        return await cursor.fetchall() if cursor.description is not None else []


class PostgresStore:
    """Transactions on a database, up to `connections` at a time. Call `close` when the application ends."""

    def __init__(self, dsn: str, schema: Schema, *, connections: int = CONNECTIONS) -> None:
        self._dsn = dsn
        self._statements = RowStatements(schema, PostgresDialect())
        self._slots = asyncio.Semaphore(connections)
        # Open connections outside of a transaction, the last used one at the end.
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def transaction(self, client: ClientKey) -> AsyncIterator[PostgresTransaction]:
        """A transaction at the database's default isolation level."""
        async with self._slots:
            connection = await self._begun()
            try:
                yield PostgresTransaction(connection, self._statements, client)
                await _commit(connection)
            except BaseException as error:
                await self._undo(connection)
                if connection.closed and isinstance(error, psycopg.OperationalError):
                    # Not a refusal. If the commit succeeded after all, the next push finds the mutation processed.
                    raise StoreUnavailable(f"Lost the database in a transaction: {error}") from error
                raise
            self._idle.append(connection)

    def is_transient(self, error: Exception) -> bool:
        """Whether it is a serialization failure or a deadlock."""
        return isinstance(error, _TRANSIENT)

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop().close()

    async def _begun(self) -> Connection:
        """A connection in a transaction. An idle one may be dead, so failures of a new one only raise."""
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.execute("BEGIN")
            except psycopg.OperationalError:
                await connection.close()
            else:
                return connection
        try:
            connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, row_factory=dict_row)
            await connection.execute("BEGIN")
        except psycopg.Error as error:
            raise StoreUnavailable(f"Failed to open database transaction: {error}") from error
        return connection

    async def _undo(self, connection: Connection) -> None:
        """Roll back, or close the connection, which makes the server roll back."""
        if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                await connection.execute("ROLLBACK")
            except psycopg.Error:
                await connection.close()
            else:
                self._idle.append(connection)
                return
        await connection.close()


async def _commit(connection: Connection) -> None:
    if connection.info.transaction_status is TransactionStatus.INERROR:
        # COMMIT of a failed transaction is a rollback that reports no error.
        raise psycopg.errors.InFailedSqlTransaction("a statement of the mutator failed, and it went on")
    await connection.execute("COMMIT")
