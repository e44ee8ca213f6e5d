"""The upstream of most end-to-end tests: an ordinary SQLite database that an application writes to.

Contract: every call is one committed transaction of a connection of its own, as an application's would be.
`wait_until_same` compares with a replica: tables, columns, every row and value, and the indexes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from tests.support.peers.replica import Moved, Replica, ReplicaError, Row
from tests.support.waiting import until

OURS = ("_changesource", "sqlite_")


class SqliteStore:
    """A database file, in WAL mode as applications that share it use."""

    def __init__(self, path: Path, *statements: str) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        if statements:
            self.run(*statements)

    def run(self, *statements: str) -> None:
        """Execute the statements in one transaction."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")

    def insert(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        """Insert whole rows in one transaction."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for row in rows:
                marks = ", ".join("?" * len(row))
                connection.execute(f'INSERT INTO "{table}" VALUES ({marks})', tuple(row))
            connection.execute("COMMIT")

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        with closing(self._connect()) as connection:
            return connection.execute(sql, tuple(parameters)).fetchall()

    def tables(self) -> list[str]:
        found = self.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [str(name) for (name,) in found if not str(name).startswith(OURS)]

    def columns(self, table: str) -> dict[str, str]:
        """Column name → declared type."""
        return {
            str(name): str(kind) for name, kind in self.query("SELECT name, type FROM pragma_table_info(?)", (table,))
        }

    def key(self, table: str) -> list[str]:
        sql = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
        return [str(name) for (name,) in self.query(sql, (table,))]

    def rows(self, table: str) -> list[Row]:
        """All rows in key order."""
        return self.query(f'SELECT {_list(self.columns(table))} FROM "{table}" ORDER BY {_list(self.key(table))}')

    def indexed_columns(self, table: str) -> set[tuple[str, ...]]:
        """The column lists of the indexes that statements made."""
        sql = """
            SELECT list.name, info.name FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS info
            WHERE list.origin = 'c' ORDER BY list.name, info.seqno
        """
        return {tuple(columns) for columns in _grouped(self.query(sql, (table,))).values()}

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None, timeout=30)


def difference(store: SqliteStore, replica: Replica) -> str:
    """What the replica lacks or has too much; empty when it equals the database."""
    expected, found = set(store.tables()), {name for name in replica.tables() if "." not in name}
    if expected != found:
        return f"tables {sorted(expected)} in the store, {sorted(found)} in the replica"
    for table in sorted(expected):
        if problem := _table_difference(store, replica, table):
            return f"table {table}: {problem}"
    return ""


def wait_until_same(store: SqliteStore, replica: Replica, *, seconds: float = 180) -> None:
    """Wait until the replica equals the database, and say how they differ if it never does."""
    last = [""]
    moved = Moved(replica)

    def same() -> bool:
        if not moved():
            return False
        try:
            last[0] = difference(store, replica)
        except ReplicaError as error:
            last[0] = str(error)
        return not last[0]

    try:
        until(same, "replica equal to the database", seconds=seconds)
    except AssertionError:
        raise AssertionError(f"the replica differs from the database: {last[0]}") from None


def _table_difference(store: SqliteStore, replica: Replica, table: str) -> str:
    declared = store.columns(table)
    if set(declared) != set(replica.columns(table)):
        return f"columns {sorted(declared)} in the store, {sorted(replica.columns(table))} in the replica"
    missing = store.indexed_columns(table) - {tuple(columns) for columns in replica.indexes(table).values()}
    if missing:
        return f"indexes on {missing} are not in the replica"
    order = _list(store.key(table))
    stored = replica.query(f'SELECT {_list(declared)} FROM "{table}" ORDER BY {order}')
    kinds = list(declared.values())
    ours = [tuple(map(_canonical, kinds, row)) for row in store.rows(table)]
    theirs = [tuple(map(_canonical, kinds, row)) for row in stored]
    return "" if ours == theirs else _rows_difference(list(declared), ours, theirs)


def _rows_difference(columns: list[str], ours: list[Row], theirs: list[Row]) -> str:
    """The number of rows, and the first cell or row that differs."""
    counts = f"{len(ours)} rows in the store, {len(theirs)} in the replica"
    for mine, other in zip(ours, theirs, strict=False):
        for column, stored, found in zip(columns, mine, other, strict=True):
            if stored != found:
                return f"{counts}; column {column} of {mine!r}: the replica has {found!r}"
    return counts


def _canonical(declared: str, value: object) -> object:
    """A value in the form both sides share: JSON as a document, blobs as hexadecimal text, others with exact type."""
    if isinstance(value, bytes):
        return ("str", f"\\x{value.hex()}")
    if isinstance(value, str) and declared.upper().startswith("JSON"):
        return json.loads(value)
    if isinstance(value, int) and declared.upper().startswith(("REAL", "DOUBLE", "FLOAT")):
        return float(value)
    return (type(value).__name__, value)


def _grouped(pairs: Iterable[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, column in pairs:
        found.setdefault(str(name), []).append(str(column))
    return found


def _list(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
