"""A consumer of the adapter's transactions: rows and columns folded as they come, compared with the tables themselves.

It is strict: a row must have the columns that the schema changes left, an update must meet a row, an insert none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adapters.spark_tables import SparkTablesAdapter
from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    Position,
    Table,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.positions import from_text, to_text

Key = tuple[object, ...]


class Held:
    """One table as the consumer has it."""

    def __init__(self, table: Table) -> None:
        self.columns = {column.name: column.data_type for column in table.columns}
        self.key = tuple(table.key)
        self.rows: dict[Key, dict[str, object]] = {}

    def put(self, row: Mapping[str, object]) -> None:
        assert set(row) == set(self.columns), f"{sorted(row)} is not {sorted(self.columns)}"
        self.rows[self.key_of(row)] = dict(row)

    def key_of(self, row: Mapping[str, object]) -> Key:
        return tuple(row[name] for name in self.key)


class Follower:
    """An adapter, followed from a snapshot taken now. `replacing`: inserts may meet rows, as after a broken feed."""

    def __init__(self, settings: Mapping[str, object], *, replacing: bool = False) -> None:
        self.settings = settings
        self.replacing = replacing
        self.tables: dict[str, Held] = {}
        self.adapter = SparkTablesAdapter(**settings)  # type: ignore[arg-type]
        snapshot = self.adapter.snapshot()
        assert snapshot.tables is not None
        self.apply(CreateTable(table) for table in snapshot.tables)
        for part in snapshot.partitions:
            self.apply(Insert(part.table, row) for row in part.rows())
        if snapshot.close is not None:
            snapshot.close()
        self.position: Position = snapshot.position

    def restart(self) -> None:
        """Go on in what could be another process: only settings and position stay."""
        self.adapter = SparkTablesAdapter(**self.settings)  # type: ignore[arg-type]
        self.position = from_text(to_text(self.position))

    def look(self) -> list[list[Change]]:
        """Apply what is new; the changes of each transaction."""
        self.adapter._due.clear()
        found = [self.take(transaction) for transaction in self.adapter.changes(self.position)]
        while self.adapter._polls:
            found += [self.take(transaction) for transaction in self.adapter.changes(self.position)]
        return found

    def take(self, transaction: Transaction) -> list[Change]:
        changes = list(transaction.changes)
        assert changes, "a transaction without changes"
        assert transaction.position != self.position
        self.apply(changes)
        self.position = transaction.position
        self.adapter.acknowledge(self.position)
        return changes

    def rows(self, table: str) -> list[dict[str, object]]:
        held = self.tables[table].rows
        return [held[key] for key in sorted(held, key=repr)]

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._apply(change)

    def _apply(self, change: Change) -> None:
        match change:
            case Insert(name, row):
                held = self.tables[name]
                assert self.replacing or held.key_of(row) not in held.rows, f"{held.key_of(row)} is there"
                held.put(row)
            case Update(name, row, _):
                held = self.tables[name]
                assert held.key_of(row) in held.rows, f"{held.key_of(row)} is not there"
                held.put(row)
            case Delete(name, key):
                held = self.tables[name]
                assert held.rows.pop(held.key_of(key), None) is not None or self.replacing
            case Truncate(names):
                for name in names:
                    self.tables[name].rows.clear()
            case CreateTable(table):
                self.tables[table.full_name] = Held(table)
            case DropTable(name):
                del self.tables[name]
            case AddColumn(name, column):
                self.tables[name].columns[column.name] = column.data_type
                for values in self.tables[name].rows.values():
                    values[column.name] = column.default
            case DropColumn(name, gone):
                del self.tables[name].columns[gone]
                for values in self.tables[name].rows.values():
                    del values[gone]
            case AlterColumn(name, old, column):
                held = self.tables[name]
                named = {column.name if n == old else n: kind for n, kind in held.columns.items()}
                held.columns = {**named, column.name: column.data_type}
                for values in held.rows.values():
                    values[column.name] = values.pop(old)
            case _:
                raise AssertionError(f"unexpected {change}")
