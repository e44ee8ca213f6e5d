"""The Postgres adapter under the suite: a database and a replication slot of its own for each case."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from adapters.postgres import PostgresAdapter
from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    Column,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    RenameTable,
    Row,
    Truncate,
    Update,
)
from changesource_sdk.testing.conformance import Harness
from tests.support.peers.postgres_server import PostgresServer
from tests.support.waiting import until

TABLE = """CREATE TABLE item (
    id bigint PRIMARY KEY, title text, amount integer, rate double precision, price numeric, is_open boolean,
    made timestamptz, due date, at time, reference uuid, extra jsonb, raw bytea
)"""
END_READER = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s"


class PostgresHarness(Harness):
    adapter = PostgresAdapter
    table = "item"
    patience = 60.0
    supports = ("schema changes",)

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def create(self, folder: Path) -> None:
        self._dsn = self._server.create_database("conformance")
        self._slot = f"conformance_{secrets.token_hex(6)}"
        self._db = psycopg.connect(self._dsn, autocommit=True)
        # The server's role is called as the adapter's own schema, which would come first.
        self._db.execute("SET search_path = public")
        self._db.execute(TABLE)

    def settings(self) -> Mapping[str, object]:
        return {"dsn": self._dsn, "slot": self._slot}

    def commit(self, changes: Sequence[Change]) -> None:
        with self._db.pipeline(), self._db.transaction():
            for change in changes:
                self._write(change)

    def _write(self, change: Change) -> None:
        match change:
            case Insert(table, row):
                names = sql.SQL(", ").join(map(sql.Identifier, row))
                marks = sql.SQL(", ").join([sql.Placeholder()] * len(row))
                self._run("INSERT INTO {} ({}) VALUES ({})", table, names, marks, given=_bound(row))
            case Update(table, row, old_key):
                assigned = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in row)
                key = (old_key or row)["id"]
                self._run("UPDATE {} SET {} WHERE id = %s", table, assigned, given=[*_bound(row), key])
            case Delete(table, key):
                self._run("DELETE FROM {} WHERE id = %s", table, given=[key["id"]])
            case Truncate(tables):
                for table in tables:
                    self._run("TRUNCATE {}", table)
            case _:
                self._write_schema(change)

    def _write_schema(self, change: Change) -> None:
        match change:
            case AddColumn(table, column):
                self._run("ALTER TABLE {} ADD COLUMN {}", table, _definition(column))
            case DropColumn(table, name):
                self._run("ALTER TABLE {} DROP COLUMN {}", table, sql.Identifier(name))
            case AlterColumn(table, old, column) if old != column.name:
                self._run("ALTER TABLE {} RENAME {} TO {}", table, sql.Identifier(old), sql.Identifier(column.name))
            case AlterColumn(table, old, column):
                kind = sql.Identifier(column.data_type)
                self._run("ALTER TABLE {} ALTER {} TYPE {}", table, sql.Identifier(old), kind)
            case CreateTable(table):
                columns = sql.SQL(", ").join(map(_definition, table.columns))
                self._run("CREATE TABLE {} ({}, PRIMARY KEY (id))", table.name, columns)
            case DropTable(name):
                self._run("DROP TABLE {}", name)
            case RenameTable(old, new):
                self._run("ALTER TABLE {} RENAME TO {}", old, sql.Identifier(new))
            case _:
                raise NotImplementedError(type(change).__name__)

    def _run(self, query: str, table: str, *parts: sql.Composable, given: Sequence[object] = ()) -> None:
        self._db.execute(sql.SQL(query).format(sql.Identifier(table), *parts), given)

    def forget(self) -> None:
        """As after a failover to a server without the slot."""
        self._db.execute(END_READER, (self._slot,))
        until(lambda: not self._slots("active"), "the slot to be free")
        self._db.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))

    def close(self) -> None:
        self._db.execute(END_READER, (self._slot,))
        until(lambda: not self._slots("active"), "the slot to be free")
        if self._slots("true"):
            self._db.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
        self._db.close()

    def _slots(self, condition: LiteralString) -> bool:
        query = sql.SQL("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND ") + sql.SQL(condition)
        return self._db.execute(query, (self._slot,)).fetchone() is not None


def _bound(row: Row) -> list[object]:
    return [Jsonb(value) if name == "extra" and value is not None else value for name, value in row.items()]


def _definition(column: Column) -> sql.Composable:
    described = sql.SQL("{} {}").format(sql.Identifier(column.name), sql.Identifier(column.data_type))
    if column.optional or column.default is None:
        return described
    return sql.SQL("{} NOT NULL DEFAULT {}").format(described, sql.Literal(column.default))
