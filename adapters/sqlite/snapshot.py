"""The snapshot: a private copy of the database file, which partitions read in parallel.

SQLite's backup interface makes the copy inside one read transaction. The position is read in the same transaction, so
the changes after it continue the snapshot exactly. Partitions are ranges of the copy: a path and two bounds. They can
be read in other processes and again later, also after the process that made the copy has died. In WAL mode writers do
not wait for the copy; with a rollback journal they do.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adapters.sqlite.capture import SchemaVersion, install, recorded_range, schema_cookie
from adapters.sqlite.catalog.introspect import quoted
from adapters.sqlite.catalog.model import TableDef
from adapters.sqlite.connection import open_database, translated_errors
from adapters.sqlite.lookup import refuse_null_keys
from adapters.sqlite.position import SqlitePosition
from adapters.sqlite.rows import StoredRowReader
from adapters.sqlite.settings import Selection
from adapters.sqlite.types import Stored
from changesource_sdk import Row, Snapshot

PARTITION_ROWS = 100_000
Bound = tuple[Stored, ...] | None


@dataclass(frozen=True, slots=True)
class TableRange:
    """The rows of a table above `lower` up to `upper` (both by the table's locator; None is open)."""

    path: str
    definition: TableDef
    lower: Bound
    upper: Bound

    @property
    def table(self) -> str:
        return self.definition.name

    def rows(self) -> Iterator[Row]:
        columns = ", ".join(map(quoted, self.definition.column_names))
        conditions: list[str] = []
        bounds: list[Stored] = []
        for operator, bound in ((">", self.lower), ("<=", self.upper)):
            if bound is not None:
                conditions.append(f"({_locator(self.definition)}) {operator} ({', '.join('?' * len(bound))})")
                bounds += bound
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query = f"SELECT {columns} FROM {quoted(self.table)}{where} ORDER BY {_locator(self.definition)}"
        with translated_errors(self.path), closing(open_database(self.path, immutable=True)) as db:
            yield from StoredRowReader(self.definition).rows(db.execute(query, bounds))  # type: ignore[misc]  # `BadRow`


def take_snapshot(db: sqlite3.Connection, path: str, selection: Selection, scratch: str | None) -> Snapshot:
    """Install the capture, copy the database into a folder under `scratch`, and divide the copy into partitions.

    The snapshot's `close` removes the folder. It can be resumed as long as the copy exists.
    """
    directory = tempfile.mkdtemp(prefix="changesource-sqlite-", dir=scratch)
    try:
        with translated_errors(path):
            copy = str(Path(directory, "snapshot.db"))
            position, version = _copy(db, selection, copy)
            partitions = _partitions(copy, version)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    tables = tuple(table.declared() for table in version.catalog.tables)
    remove = partial(shutil.rmtree, directory, ignore_errors=True)
    return Snapshot(position.to_json(), partitions, tables=tables, close=remove, can_resume=Path(copy).exists)


def _copy(db: sqlite3.Connection, selection: Selection, target: str) -> tuple[SqlitePosition, SchemaVersion]:
    # The schema may change between `install` and the read transaction: try again until the catalog is that of the copy.
    while True:
        version = install(db, selection)
        db.execute("BEGIN")
        try:
            last = recorded_range(db)[1]
            if schema_cookie(db) == version.catalog.cookie:
                with closing(sqlite3.connect(target)) as copy:
                    db.backup(copy)
                return SqlitePosition(version.catalog.origin, last, version.number), version
        finally:
            db.rollback()


def _partitions(copy: str, version: SchemaVersion) -> list[TableRange]:
    with closing(open_database(copy, immutable=True)) as db:
        for table in version.catalog.tables:
            refuse_null_keys(db, table)
        return [part for table in version.catalog.tables for part in _ranges(db, copy, table)]


def _ranges(db: sqlite3.Connection, copy: str, table: TableDef) -> Iterator[TableRange]:
    """Ranges of `PARTITION_ROWS` rows; reads the locator of every row once."""
    locator, lower = _locator(table), None
    marks = ", ".join("?" * len(table.locator))
    while True:
        where = f"WHERE ({locator}) > ({marks}) " if lower is not None else ""
        step = (
            f"SELECT {locator} FROM {quoted(table.name)} {where}ORDER BY {locator} LIMIT 1 OFFSET {PARTITION_ROWS - 1}"
        )
        upper = db.execute(step, lower or ()).fetchone()
        yield TableRange(copy, table, lower, upper)
        if upper is None:
            return
        lower = upper


def _locator(table: TableDef) -> str:
    return ", ".join(map(quoted, table.locator))
