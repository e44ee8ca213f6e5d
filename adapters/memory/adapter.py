"""A store in memory and its adapter: everything an adapter does, with nothing to install.

`MemoryStore` is the store: tables of rows, and a list of committed transactions whose length is the position.
Programs in the same process write to it with `commit`. `MemoryAdapter` shows it to the pipeline. Served from the
command line it holds the rows of a JSON file (`--set file=data.json`): `{"table": [{"id": 1, …}, …]}`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from changesource_sdk import (
    AdapterError,
    Change,
    Column,
    ConfigurationError,
    Delete,
    Insert,
    Position,
    ResyncRequired,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    Update,
)


class MemoryStore:
    """Tables, rows by key, and the transactions committed so far. Threads may share it; a commit is seen whole."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = {table.full_name: table for table in tables}
        self.rows: dict[str, dict[tuple[object, ...], Row]] = {table.full_name: {} for table in tables}
        self.history: list[tuple[float, tuple[Change, ...]]] = []
        self.changed = threading.Condition()

    def __getstate__(self) -> dict[str, Any]:
        with self.changed:
            return {"tables": self.tables, "rows": self.rows, "history": self.history}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickled store is a copy: commits to one are not seen in the other."""
        self.__dict__.update(state)
        self.changed = threading.Condition()

    def commit(self, changes: Iterable[Change]) -> int:
        """Apply row changes as one transaction; its position."""
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


class MemoryAdapter:
    """The adapter: positions are the number of transactions committed."""

    poll_interval = 0.0  # `changes` itself waits for commits

    def __init__(self, file: str = "", store: MemoryStore | None = None) -> None:
        self.store = store or load(file)
        self._closed = False

    def tables(self) -> Sequence[Table]:
        """The store's tables."""
        return list(self.store.tables.values())

    def snapshot(self) -> Snapshot:
        """All rows, and how many transactions made them."""
        with self.store.changed:
            partitions = [RowsPartition(table, list(rows.values())) for table, rows in self.store.rows.items()]
            return Snapshot(len(self.store.history), partitions)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The transactions after a position; returns when there is none for a second."""
        with self.store.changed:
            position = self._known(after)
            self.store.changed.wait_for(lambda: self._closed or len(self.store.history) > position, timeout=1.0)
            new = self.store.history[position:]
        for number, (commit_time_ms, batch) in enumerate(new, start=position + 1):
            yield Transaction(number, batch, commit_time_ms)

    def _known(self, position: Position) -> int:
        if isinstance(position, int) and position <= len(self.store.history):
            return position
        raise ResyncRequired(
            "position-lost",
            f"the position {position!r} was not made by this store",
            fix="nothing to do: the store is read anew and consumers are reset",
        )

    def close(self) -> None:
        """Make `changes` return."""
        with self.store.changed:
            self._closed = True
            self.store.changed.notify_all()


def load(file: str) -> MemoryStore:
    """A store with the tables and rows of a JSON file; column types are those of the first row's values."""
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
