"""A consumer of changes that knows nothing of how they were made: a strict fold, compared with the database itself.

It refuses what the official consumer could not apply: unknown tables and columns, names taken, an indexed column
dropped, an update that breaks a unique index. Inserts replace every row they share a unique key with.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

import changesource_sdk as sdk

Values = dict[str, object]


@dataclass
class HeldTable:
    columns: dict[str, sdk.Column]
    key: tuple[str, ...]
    rows: dict[tuple[object, ...], Values] = field(default_factory=dict)


@dataclass
class Consumer:
    tables: dict[str, HeldTable] = field(default_factory=dict)
    indexes: dict[str, sdk.Index] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: sdk.Snapshot) -> Consumer:
        consumer = cls()
        assert snapshot.tables is not None
        consumer.apply(sdk.CreateTable(table) for table in snapshot.tables)
        for part in snapshot.partitions:
            consumer.apply(sdk.Insert(part.table, row) for row in part.rows())
        if snapshot.close:
            snapshot.close()
        return consumer

    def copy(self) -> Consumer:
        return deepcopy(self)

    def apply(self, changes: Iterable[sdk.Change]) -> None:
        for change in changes:
            self._apply(change)

    def _apply(self, change: sdk.Change) -> None:
        match change:
            case sdk.Insert(name, row):
                self._put(name, row)
            case sdk.Update(name, row, old_key):
                assert old_key is None
                self._refuse_conflicts(name, row)
                self._put(name, row)
            case sdk.Delete(name, key):
                table = self.tables[name]
                assert set(key) == set(table.key)
                table.rows.pop(tuple(key[column] for column in table.key), None)
            case sdk.Truncate(names):
                for name in names:
                    self.tables[name].rows.clear()
            case sdk.CreateTable(table):
                self._create(table)
            case sdk.DropTable(name):
                del self.tables[name]
                self.indexes = {key: index for key, index in self.indexes.items() if index.table != name}
            case sdk.RenameTable(old, new):
                assert new not in self.tables, f"{new} is taken"
                self.tables[new] = self.tables.pop(old)
                for full_name, index in self.indexes.items():
                    if index.table == old:
                        self.indexes[full_name] = sdk.Index(index.name, index.columns, index.unique, new)
            case sdk.AddColumn(name, column):
                held = self.tables[name]
                assert column.name not in held.columns
                held.columns[column.name] = column
                for values in held.rows.values():
                    values[column.name] = column.default
            case sdk.DropColumn(name, column_name):
                self._drop_column(name, column_name)
            case sdk.AlterColumn(name, old_name, column):
                self._alter(name, old_name, column)
            case sdk.CreateIndex(index):
                self._create_index(index)
            case sdk.DropIndex(name):
                del self.indexes[name]

    def _create(self, table: sdk.Table) -> None:
        assert table.full_name not in self.tables, f"{table.full_name} exists"
        self.tables[table.full_name] = HeldTable({c.name: c for c in table.columns}, tuple(table.key))
        assert table.key_index is not None
        for index in (table.key_index, *table.indexes):
            self._create_index(index)

    def _create_index(self, index: sdk.Index) -> None:
        assert index.full_name not in self.indexes, f"index {index.full_name} exists"
        assert set(index.directions) <= set(self.tables[index.table].columns)
        self.indexes[index.full_name] = index

    def _drop_column(self, name: str, column: str) -> None:
        assert not any(column in index.directions for index in self._indexes_of(name)), f"{column} is indexed"
        del self.tables[name].columns[column]
        for values in self.tables[name].rows.values():
            del values[column]

    def _alter(self, name: str, old_name: str, column: sdk.Column) -> None:
        held = self.tables[name]
        assert column.name == old_name or column.name not in held.columns, f"column {column.name} is taken"
        renamed = {old_name: column.name}
        held.columns = {renamed.get(n, n): column if n == old_name else c for n, c in held.columns.items()}
        held.key = tuple(renamed.get(n, n) for n in held.key)
        for key, values in held.rows.items():
            held.rows[key] = {renamed.get(n, n): value for n, value in values.items()}
        for full_name, index in self.indexes.items():
            if index.table == name:
                columns = [(renamed.get(n, n), direction) for n, direction in index.directions.items()]
                self.indexes[full_name] = sdk.Index(index.name, columns, index.unique, name)

    def _indexes_of(self, table: str) -> list[sdk.Index]:
        return [index for index in self.indexes.values() if index.table == table]

    def _conflicting(self, name: str, row: sdk.Row) -> set[tuple[object, ...]]:
        found = set()
        for index in self._indexes_of(name):
            value = tuple(row[column] for column in index.directions)
            if index.unique and None not in value:
                rows = self.tables[name].rows.items()
                found |= {key for key, values in rows if tuple(values[c] for c in index.directions) == value}
        return found

    def _refuse_conflicts(self, name: str, row: sdk.Row) -> None:
        own = tuple(row[column] for column in self.tables[name].key)
        assert self._conflicting(name, row) <= {own}, "an update breaks a unique index"

    def _put(self, name: str, row: sdk.Row) -> None:
        held = self.tables[name]
        assert set(row) == set(held.columns), f"{name}: {sorted(row)} is not {sorted(held.columns)}"
        for key in self._conflicting(name, row):
            del held.rows[key]
        held.rows[tuple(row[column] for column in held.key)] = dict(row)


def tables_of(db: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
    return [name for (name,) in db.execute(query) if not name.startswith(("sqlite_", "_changesource_"))]


def assert_equal(consumer: Consumer, db: sqlite3.Connection) -> None:
    """The consumer holds the database's tables, columns, rows and indexes; values must not need conversion."""
    assert set(consumer.tables) == set(tables_of(db))
    for name, held in consumer.tables.items():
        columns = [column for (column,) in db.execute("SELECT name FROM pragma_table_xinfo(?)", (name,))]
        assert set(held.columns) == set(columns), name
        listed = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
        quoted = '"' + name.replace('"', '""') + '"'
        rows = [dict(zip(columns, row, strict=True)) for row in db.execute(f"SELECT {listed} FROM {quoted}")]
        stored = {key(held, row): row for row in rows}
        assert stored == held.rows, f"{name}: {difference(stored, held.rows)}"
        assert_indexes_equal(consumer, name, db)
    assert {index.table for index in consumer.indexes.values()} == set(consumer.tables)


def key(held: HeldTable, row: sdk.Row) -> tuple[object, ...]:
    return tuple(row[column] for column in held.key)


def assert_indexes_equal(consumer: Consumer, table: str, db: sqlite3.Connection) -> None:
    """The same columns are indexed, in the same order and as uniquely; the key counts once."""
    held = {(tuple(index.directions), index.unique) for index in consumer._indexes_of(table)}
    stored = {(consumer.tables[table].key, True)}
    for name, unique in db.execute('SELECT name, "unique" FROM pragma_index_list(?)', (table,)).fetchall():
        columns = db.execute("SELECT name FROM pragma_index_info(?)", (name,))
        stored.add((tuple(column for (column,) in columns), bool(unique)))
    assert held == stored, table


def difference(stored: dict[tuple[object, ...], Values], held: dict[tuple[object, ...], Values]) -> str:
    """What a failing comparison is about."""
    wrong = [key for key in stored.keys() | held.keys() if stored.get(key) != held.get(key)]
    return ", ".join(f"{key} is {stored.get(key)} and was received as {held.get(key)}" for key in wrong)
