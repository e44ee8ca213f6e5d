"""Mutators over a MySQL or MariaDB database, by PyMySQL.

PyMySQL is pure Python: nothing is compiled and no client library is needed, and the same driver speaks to both
servers. It blocks, so each connection has a thread of its own.

The cache's tables are in the database `{app}_{shard}` of the same server; a transaction can write to several databases
there. They must be in a storage engine with transactions (InnoDB). Create them with `create_system_tables` before the
change source first reads the server.

A mutator must not run statements that commit implicitly, such as `CREATE TABLE` or `TRUNCATE`: its writes would then be
durable without its confirmation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import ER
from pymysql.cursors import DictCursor

from reference_cache.app_server.errors import StoreUnavailable
from reference_cache.app_server.stores.confirming_transaction import ConfirmingTransaction
from reference_cache.app_server.stores.connection_thread import ConnectionThread
from reference_cache.app_server.stores.dialect import MysqlDialect
from reference_cache.app_server.stores.row_statements import RowStatements
from reference_cache.app_server.stores.sql_transaction import Parameters
from reference_cache.app_server.stores.store import ClientKey
from reference_cache.zql.schema import Schema

CONNECTIONS = 8
CONNECT_SECONDS = 10.0
PORT = 3306
STRICT = "SET SESSION sql_mode = 'TRADITIONAL'"
"""A value that does not fit is an error. Without it, the server may cut it off and only warn."""
OPTIONS = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key")

_RECORD_CHANGED = 1020
_TRANSIENT = (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, _RECORD_CHANGED)
# Ids are compared byte by byte: with the usual collations `a` and `A` would be one client.
_ID = "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_CLIENT = f"`clientGroupID` {_ID} NOT NULL, `clientID` {_ID} NOT NULL"
_TABLES = {
    "clients": f"{_CLIENT}, `lastMutationID` BIGINT NOT NULL, `userID` TEXT CHARACTER SET utf8mb4, "
    "PRIMARY KEY (`clientGroupID`, `clientID`)",
    "mutations": f"{_CLIENT}, `mutationID` BIGINT NOT NULL, mutation JSON, result JSON, "
    "PRIMARY KEY (`clientGroupID`, `clientID`, `mutationID`)",
}

Connection: TypeAlias = "pymysql.Connection[DictCursor]"
Session: TypeAlias = ConnectionThread[Connection]


class MysqlTransaction(ConfirmingTransaction):
    """The `tx` of mutators. Once it has the mutation id, its row lock makes other transactions of the client wait."""

    missing_table_errors = (pymysql.err.ProgrammingError, pymysql.err.OperationalError)
    missing_table_text = "doesn't exist"
    missing_table_fix = "call create_system_tables() before the change source first starts"

    def __init__(self, session: Session, statements: RowStatements, client: ClientKey) -> None:
        super().__init__(statements, client)
        self._session = session

    async def execute(self, statement: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        return await self._session(partial(_run, statement=statement, parameters=parameters))


class MysqlStore:
    """Transactions on a server, up to `connections` at a time. Call `close` when the application ends.

    `url` is `mysql://user:password@host:3306/database`, with the parameters `unix_socket`, `ssl_ca`, `ssl_cert` and
    `ssl_key` where they are needed. Raises `ValueError` for another URL.
    """

    def __init__(self, url: str, schema: Schema, *, connections: int = CONNECTIONS) -> None:
        self._arguments = _arguments(url)
        self._statements = RowStatements(schema, MysqlDialect())
        self._slots = asyncio.Semaphore(connections)
        # Open connections outside of a transaction, the last used one at the end.
        self._idle: list[Session] = []

    def create_system_tables(self, app_id: str = "zero", shard: int = 0) -> None:
        """Create the database and the tables that confirm mutations, unless they exist; blocks."""
        dialect, schema = self._statements.dialect, f"{app_id}_{shard}"
        connection = _connect(self._arguments)
        try:
            _run(connection, f"CREATE DATABASE IF NOT EXISTS {dialect.quote(schema)}")
            for name, columns in _TABLES.items():
                table = dialect.table(f"{schema}.{name}")
                _run(connection, f"CREATE TABLE IF NOT EXISTS {table} ({columns}) ENGINE = InnoDB")
        finally:
            connection.close()

    @asynccontextmanager
    async def transaction(self, client: ClientKey) -> AsyncIterator[MysqlTransaction]:
        """A transaction at the server's default isolation level."""
        async with self._slots:
            session = await self._begun()
            try:
                yield MysqlTransaction(session, self._statements, client)
                await session(lambda connection: connection.commit())
            except BaseException as error:
                # Shielded, so that a cancelled caller leaves no transaction open.
                is_lost = await asyncio.shield(self._undo(session))
                if is_lost and isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError):
                    # Not a refusal. If the commit succeeded after all, the next push finds the mutation processed.
                    raise StoreUnavailable(f"Lost the database in a transaction: {error}") from error
                raise
            self._idle.append(session)

    def is_transient(self, error: Exception) -> bool:
        """Whether it is a deadlock, a lock that was waited for too long, or a row that changed since it was read."""
        return isinstance(error, pymysql.err.OperationalError) and error.args[:1] in {(code,) for code in _TRANSIENT}

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await asyncio.to_thread(self._idle.pop().close)

    async def _begun(self) -> Session:
        """A connection in a transaction. An idle one may be dead, so failures of a new one only raise."""
        while self._idle:
            session = self._idle.pop()
            try:
                await session(lambda connection: connection.begin())
            except pymysql.err.MySQLError:
                await _discard(session)
            else:
                return session
        session = ConnectionThread(partial(_connect, self._arguments), "app-server-mysql")
        try:
            await session(lambda connection: connection.begin())
        except (pymysql.err.MySQLError, OSError) as error:
            await _discard(session)
            raise StoreUnavailable(f"Failed to open database transaction: {error}") from error
        return session

    async def _undo(self, session: Session) -> bool:
        """Roll back, after a statement that still runs; whether the connection is lost instead, and closed."""
        try:
            await session(lambda connection: connection.rollback())
        except pymysql.err.MySQLError:
            await _discard(session)
            return True
        self._idle.append(session)
        return False


async def _discard(session: Session) -> None:
    try:
        await asyncio.to_thread(session.close)
    except pymysql.err.MySQLError:
        pass  # a dead connection cannot say goodbye


def _arguments(url: str) -> dict[str, Any]:
    """The arguments of `pymysql.connect`."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    unknown = [name for name in options if name not in OPTIONS]
    if parts.scheme not in ("mysql", "mariadb") or unknown:
        wrong = f"has the parameter {unknown[0]!r}" if unknown else "does not begin with mysql://"
        raise ValueError(f"the URL of the store {wrong}; use mysql://user:password@host:{PORT}/database")
    return {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or PORT,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.lstrip("/")) or None,
        **options,
    }


def _connect(arguments: dict[str, Any]) -> Connection:
    return pymysql.connect(
        **arguments,
        charset="utf8mb4",
        cursorclass=DictCursor,
        init_command=STRICT,
        connect_timeout=CONNECT_SECONDS,
        autocommit=False,
    )


def _run(connection: Connection, statement: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return list(cursor.fetchall()) if cursor.description is not None else []
