"""The upstream of the memory adapter: tables of rows in this process.

Programs in the same process write with `MemoryStore.commit`. From the command line the store has the rows of a JSON
file: `{"table": [{"id": 1, …}, …]}`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from changesource_sdk import AdapterError, Change, Column, ConfigurationError, Delete, Insert, Row, Table, Update


class MemoryStore:
    """Tables, rows by key, and the committed transactions. Threads may share it: other threads see a commit whole."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = {table.full_name: table for table in tables}
        # Rows by table and key, and the committed transactions with the time of each in milliseconds since 1970.
        # `commit` writes both and notifies `changed`, whose lock every reader and writer holds.
        self.rows: dict[str, dict[tuple[object, ...], Row]] = {table.full_name: {} for table in tables}
        self.history: list[tuple[float, tuple[Change, ...]]] = []  # its length is the newest position
        self.changed = threading.Condition()  # not picklable: a copy has its own

    def __getstate__(self) -> dict[str, Any]:
        with self.changed:
            return {"tables": self.tables, "rows": self.rows, "history": self.history}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickled store is a copy: commits to one are not seen in the other."""
        self.__dict__.update(state)
        self.changed = threading.Condition()

    def commit(self, changes: Iterable[Change]) -> int:
        """Apply row changes as one transaction; returns its position."""
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
            case _:
                raise AdapterError("rows-only", "the memory store takes row changes only", fix="use another store")

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
