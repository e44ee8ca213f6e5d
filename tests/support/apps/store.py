"""The store of the scenario's application, in SQLite, Postgres or MariaDB: one set of statements for all.

Statements have `?` for values and `{clients}`, `{mutations}` for the tables that confirm mutations, which SQLite keeps
under one dotted name, Postgres in a schema and MariaDB in a database. What `run` is given is one transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pymysql.cursors import Cursor

from reference_cache.app_server.stores.mysql import MysqlStore
from reference_cache.app_server.stores.sqlite import create_system_tables
from reference_cache.zql.schema import schema
from tests.support.peers.mariadb_server import MariadbServer

_ANYONE = {"row": {"select": [["allow", {"type": "and", "conditions": []}]]}}


@dataclass(slots=True)
class Session:
    """A connection on which statements run as they are given, without a transaction unless one was begun."""

    connection: Any
    tables: dict[str, str]
    mark: str
    begin_with: str

    def __call__(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement.format(**self.tables).replace("?", self.mark), values)
        return list(cursor.fetchall()) if cursor.description else []

    def begin(self) -> None:
        self(self.begin_with)


@dataclass(frozen=True, slots=True)
class AppStore:
    """A database the application writes to; `adapter` and `settings` are how an endpoint serves it."""

    adapter: str
    settings: dict[str, str]
    connect: Callable[[], Any]
    table: Callable[[str, str], str]
    mark: str
    begin_with: str

    @contextmanager
    def session(self, schema: str = "zero_0") -> Iterator[Session]:
        tables = {name: self.table(schema, name) for name in ("clients", "mutations")}
        with closing(self.connect()) as connection:
            yield Session(connection, tables, self.mark, self.begin_with)

    def run(self, *statements: str) -> None:
        with self.session() as session:
            session.begin()
            for statement in statements:
                session(statement)
            session("COMMIT")

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with self.session() as session:
            return session(statement)


def sqlite_app_store(path: Path, *statements: str) -> AppStore:
    """A SQLite file with the tables that confirm mutations, and these."""
    store = AppStore(
        "sqlite",
        {"path": str(path)},
        lambda: sqlite3.connect(path, timeout=30, isolation_level=None),
        lambda schema, name: f'"{schema}.{name}"',
        "?",
        "BEGIN IMMEDIATE",
    )
    store.query("PRAGMA journal_mode = WAL")
    with closing(store.connect()) as connection:
        create_system_tables(connection)
    store.run(*statements)
    return store


class _MysqlConnection:
    """A connection with `execute`, as the other drivers have it; names are quoted as in standard SQL."""

    def __init__(self, server: MariadbServer, database: str) -> None:
        self._connection = server.connect(database)
        self.execute("SET sql_mode = 'TRADITIONAL,ANSI_QUOTES'", ())

    def execute(self, statement: str, values: Sequence[object]) -> Any:
        cursor = self._connection.cursor(Cursor)
        cursor.execute(statement, values or None)
        return cursor

    def close(self) -> None:
        self._connection.close()


def mysql_app_store(server: MariadbServer, *statements: str) -> AppStore:
    """A MariaDB database with these tables, and new tables that confirm mutations, which the whole server shares."""
    database = server.create_database("app")
    store = AppStore(
        "",
        {"url": server.url(database)},
        lambda: _MysqlConnection(server, database),
        lambda schema, name: f'"{schema}"."{name}"',
        "%s",
        "BEGIN",
    )
    store.query("DROP DATABASE IF EXISTS zero_0")
    MysqlStore(server.url(database), schema([], {})).create_system_tables()
    store.run(*statements)
    return store


def postgres_app_store(dsn: str, *statements: str) -> AppStore:
    """A Postgres database with these tables; the adapter makes the ones that confirm mutations."""
    store = AppStore(
        "postgres",
        {"dsn": dsn},
        lambda: psycopg.connect(dsn, autocommit=True),
        lambda schema, name: f"{schema}.{name}",
        "%s",
        "BEGIN",
    )
    store.run(*statements)
    return store


def allow_reading(store: AppStore, tables: Sequence[str]) -> None:
    """Deploy permissions that let anybody read these tables, where the store itself holds them."""
    document = json.dumps({"tables": dict.fromkeys(tables, _ANYONE)})
    with store.session() as session:
        session("UPDATE zero.permissions SET permissions = ?", document)
