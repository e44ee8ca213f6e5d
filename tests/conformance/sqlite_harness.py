"""The SQLite adapter under the suite: an ordinary database file, written to as an application would."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

from adapters.sqlite import SqliteAdapter
from adapters.sqlite.triggers import CHANGES
from changesource_sdk.adapter import (
    Adapter,
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

TABLE = """CREATE TABLE item (
    id INTEGER PRIMARY KEY, title TEXT, amount INTEGER, rate REAL, is_open BOOLEAN, extra JSON, raw BLOB
)"""


class SqliteHarness(Harness):
    adapter: ClassVar[type[Adapter]] = SqliteAdapter
    patience = 60.0
    supports = ("schema changes",)

    def create(self, folder: Path) -> None:
        self.path = folder / "app.db"
        with closing(sqlite3.connect(self.path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(TABLE)

    def settings(self) -> Mapping[str, object]:
        return {"path": str(self.path)}

    def commit(self, changes: Sequence[Change]) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=30)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN IMMEDIATE")
            for change in changes:
                self._write(db, change)
            db.execute("COMMIT")

    def _write(self, db: sqlite3.Connection, change: Change) -> None:
        match change:
            case Insert(table, row):
                names, marks = ", ".join(row), ", ".join("?" * len(row))
                db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", _bound(row))
            case Update(table, row, old_key):
                assigned = ", ".join(f"{name} = ?" for name in row)
                key = old_key or {"id": row["id"]}
                db.execute(f"UPDATE {table} SET {assigned} WHERE id = ?", [*_bound(row), key["id"]])
            case Delete(table, key):
                db.execute(f"DELETE FROM {table} WHERE id = ?", (key["id"],))
            case Truncate(tables):
                for table in tables:
                    db.execute(f"DELETE FROM {table}")
            case _:
                _write_schema(db, change)

    def forget(self) -> None:
        """As another reader of the same file does, which acknowledges what it has read."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=30)) as db:
            db.execute(f"DELETE FROM {CHANGES} WHERE seq < (SELECT max(seq) FROM {CHANGES})")

    def retained(self) -> int:
        with closing(sqlite3.connect(self.path)) as db:
            return int(db.execute(f"SELECT count(*) FROM {CHANGES}").fetchone()[0])


def _bound(row: Row) -> list[object]:
    return [json.dumps(value) if name == "extra" and value is not None else value for name, value in row.items()]


def _write_schema(db: sqlite3.Connection, change: Change) -> None:
    match change:
        case AddColumn(table, column):
            db.execute(f"ALTER TABLE {table} ADD COLUMN {_definition(column)}")
        case DropColumn(table, name):
            db.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
        case AlterColumn(table, old, column) if old != column.name:
            db.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {column.name}")
        case AlterColumn(table, old, column):
            # SQLite changes no types: a column takes the other's name.
            db.execute(f"ALTER TABLE {table} ADD COLUMN other_type {column.data_type}")
            db.execute(f"ALTER TABLE {table} DROP COLUMN {old}")
            db.execute(f"ALTER TABLE {table} RENAME COLUMN other_type TO {old}")
        case CreateTable(table):
            columns = ", ".join(_definition(column) for column in table.columns if column.name != "id")
            db.execute(f"CREATE TABLE {table.name} (id INTEGER PRIMARY KEY, {columns})")
        case DropTable(name):
            db.execute(f"DROP TABLE {name}")
        case RenameTable(old, new):
            db.execute(f"ALTER TABLE {old} RENAME TO {new}")
        case _:
            raise NotImplementedError(type(change).__name__)


def _definition(column: Column) -> str:
    required = "" if column.optional else f" NOT NULL DEFAULT {column.default}"
    return f"{column.name} {column.data_type}{required}"
