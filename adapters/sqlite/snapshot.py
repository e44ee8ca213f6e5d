"""One consistent state, readable in parallel: a private copy of the database file.

The copy is made through SQLite's backup interface inside one read transaction, in which the position is read too;
so the seam to the changes that follow is exact. Partitions are ranges of the copy. They hold a path and two bounds,
travel to other processes, and can be read again, also after the process that made the copy has died. In WAL mode
writers are not held up; with a rollback journal they wait for the copy.
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
from adapters.sqlite.catalog import TableDef
from adapters.sqlite.connection import naming_the_cause, open_database
from adapters.sqlite.introspect import Selection, quoted
from adapters.sqlite.lookup import refuse_null_keys
from adapters.sqlite.tail import Place
from adapters.sqlite.types import RowReader, Stored
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
        """The table's full name."""
        return self.definition.name

    def rows(self) -> Iterator[Row]:
        """The rows, in the order of the locator."""
        columns = ", ".join(map(quoted, self.definition.column_names))
        conditions: list[str] = []
        bounds: list[Stored] = []
        for operator, bound in ((">", self.lower), ("<=", self.upper)):
            if bound is not None:
                conditions.append(f"({_locator(self.definition)}) {operator} ({', '.join('?' * len(bound))})")
                bounds += bound
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query = f"SELECT {columns} FROM {quoted(self.table)}{where} ORDER BY {_locator(self.definition)}"
        with naming_the_cause(self.path), closing(open_database(self.path, immutable=True)) as db:
            yield from RowReader(self.definition).rows(db.execute(query, bounds))


def take_snapshot(db: sqlite3.Connection, path: str, selection: Selection, scratch: str | None) -> Snapshot:
    """Install the capture, copy the database, and cut the copy into partitions."""
    directory = tempfile.mkdtemp(prefix="changesource-sqlite-", dir=scratch)
    try:
        with naming_the_cause(path):
            copy = str(Path(directory, "snapshot.db"))
            place, version = _copy(db, selection, copy)
            partitions = _partitions(copy, version)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    tables = tuple(table.declared() for table in version.catalog.tables)
    remove = partial(shutil.rmtree, directory, ignore_errors=True)
    return Snapshot(place.position(), partitions, tables=tables, close=remove, can_resume=Path(copy).exists)


def _copy(db: sqlite3.Connection, selection: Selection, target: str) -> tuple[Place, SchemaVersion]:
    """A copy of the state at a place, whose schema the capture fits."""
    while True:
        version = install(db, selection)
        db.execute("BEGIN")
        try:
            last = recorded_range(db)[1]
            if schema_cookie(db) == version.catalog.cookie:
                with closing(sqlite3.connect(target)) as copy:
                    db.backup(copy)
                return Place(version.catalog.origin, last, version.number), version
        finally:
            db.rollback()


def _partitions(copy: str, version: SchemaVersion) -> list[TableRange]:
    with closing(open_database(copy, immutable=True)) as db:
        for table in version.catalog.tables:
            refuse_null_keys(db, table)
        return [part for table in version.catalog.tables for part in _ranges(db, copy, table)]


def _ranges(db: sqlite3.Connection, copy: str, table: TableDef) -> Iterator[TableRange]:
    """Ranges of equal numbers of rows, found by walking the locator once."""
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
