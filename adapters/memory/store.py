"""The upstream of the memory adapter: tables of rows in this process.

Programs in the same process write with `MemoryStore.commit`. From the command line the store has the rows of a JSON
file: `{"table": [{"id": 1, …}, …]}`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from changesource_sdk import (
    AdapterError,
    AddColumn,
    AlterColumn,
    Change,
    Column,
    ConfigurationError,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    RenameTable,
    Row,
    Table,
    Truncate,
    Update,
)
from changesource_sdk.toolkit import FollowedTables


class MemoryStore:
    """Tables, rows by key, and the committed transactions. Threads may share it: other threads see a commit whole."""

    def __init__(self, tables: Sequence[Table]) -> None:
        # `commit` follows schema changes with it, under the lock of `changed`.
        self._followed = FollowedTables(tables)
        # Rows by table and key, and the committed transactions with the time of each in milliseconds since 1970.
        # `commit` writes both and notifies `changed`, whose lock every reader and writer holds.
        self.rows: dict[str, dict[tuple[object, ...], Row]] = {table.full_name: {} for table in tables}
        self.history: list[tuple[float, tuple[Change, ...]]] = []  # its length is the newest position
        self.changed = threading.Condition()  # not picklable: a copy has its own

    @property
    def tables(self) -> dict[str, Table]:
        """The tables as they are now, by name."""
        return {table.full_name: table for table in self._followed.tables}

    def __getstate__(self) -> dict[str, Any]:
        with self.changed:
            return {"_followed": self._followed, "rows": self.rows, "history": self.history}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickled store is a copy: commits to one are not seen in the other."""
        self.__dict__.update(state)
        self.changed = threading.Condition()

    def commit(self, changes: Iterable[Change]) -> int:
        """Apply changes of rows and tables as one transaction; returns its position."""
        with self.changed:
            batch = tuple(changes)
            for change in batch:
                self._apply(change)
            self.history.append((time.time() * 1000, batch))
            self.changed.notify_all()
            return len(self.history)

    def _apply(self, change: Change) -> None:
        match change:
            case Insert(table, row):
                self.rows[table][self._key(table, row)] = row
            case Update(table, row, old_key):
                old = self.rows[table].pop(self._key(table, old_key or row), {})
                self.rows[table][self._key(table, row)] = {**old, **row}
            case Delete(table, key):
                self.rows[table].pop(self._key(table, key), None)
            case Truncate(tables):
                self.rows.update({table: {} for table in tables})
            case _:
                self._apply_to_tables(change)

    def _apply_to_tables(self, change: Change) -> None:
        self._followed.follow(change)
        match change:
            case CreateTable(table):
                self.rows[table.full_name] = {}
            case DropTable(name):
                del self.rows[name]
            case RenameTable(old, new):
                self.rows[new] = self.rows.pop(old)
            case AddColumn(table, column):
                self._alter_rows(table, lambda row: {**row, column.name: column.default})
            case DropColumn(table, gone):
                self._alter_rows(table, lambda row: {name: row[name] for name in row if name != gone})
            case AlterColumn(table, old, column):
                self._alter_rows(table, lambda row: {column.name if n == old else n: v for n, v in row.items()})
            case _:
                raise AdapterError("no-indexes", "the memory store has no indexes", fix="use another store")

    def _alter_rows(self, table: str, altered: Callable[[Row], Row]) -> None:
        self.rows[table] = {key: altered(row) for key, row in self.rows[table].items()}

    def _key(self, table: str, row: Row) -> tuple[object, ...]:
        return tuple(row[name] for name in self.tables[table].key)


def load(file: str) -> MemoryStore:
    """A store with the tables and rows of a JSON file. The values of the first row give the column types."""
    try:
        content = json.loads(Path(file).read_text())
        store = MemoryStore([_table(name, rows[0]) for name, rows in content.items()])
        store.commit(Insert(name, row) for name, rows in content.items() for row in rows)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ConfigurationError(
            "memory-file",
            f"the data file cannot be used: {error}",
            where=file or "setting file",
            fix='give --set file=data.json with {"table": [{"id": 1, …}, …], …}, at least one row each',
        ) from error
    return store


def _table(name: str, row: dict[str, object]) -> Table:
    columns = [Column(column, str if value is None else type(value)) for column, value in row.items()]
    return Table(name, columns, key=("id",) if "id" in row else (next(iter(row)),))
