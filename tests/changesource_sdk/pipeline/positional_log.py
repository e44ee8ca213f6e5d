"""An upstream like a binary log: its entries hold values by number of column, without names, and schema events.

Only the columns of the entry's time say what a value is. The log is a file, so every process can read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from changesource_sdk import (
    AddColumn,
    AlterColumn,
    Change,
    Column,
    DropColumn,
    Insert,
    Position,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
)

NOTE = Table("note", [Column("id", int), Column("title", str), Column("secret", str)])


class PositionalLog:
    """Writes the file: one line for each transaction, with `put`, `add`, `drop` and `rename` entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def commit(self, *entries: Sequence[object]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entries) + "\n")


class PositionalAdapter:
    """Reads the entries with the tables of their position. A position is a number of transactions."""

    poll_interval = 0.005

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        # The table at the position of the next `changes`; written by `use_tables`.
        self._table: Table | None = None

    def tables(self) -> Sequence[Table]:
        table = NOTE
        for _, changes in self._transactions(0, NOTE):
            table = _after(table, changes)
        return [table]

    def snapshot(self) -> Snapshot:
        table, position = NOTE, 0
        rows: dict[object, Row] = {}
        for number, changes in self._transactions(0, NOTE):
            position, table = number, _after(table, changes)
            for change in changes:
                rows = _rows_after(rows, change)
        return Snapshot(position, [RowsPartition("note", list(rows.values()))], tables=[table])

    def use_tables(self, tables: Sequence[Table]) -> None:
        (self._table,) = [table for table in tables if table.full_name == "note"]

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        assert self._table is not None, "changes() without use_tables()"
        for number, changes in self._transactions(after, self._table):
            yield Transaction(number, changes)

    def _transactions(self, after: int, table: Table) -> Iterator[tuple[int, list[Change]]]:
        for number, line in enumerate(self._path.read_text().splitlines()[after:], start=after + 1):
            changes: list[Change] = []
            for entry in json.loads(line):
                changes.append(_change(entry, table))
                table = _after(table, changes[-1:])
            yield number, changes


class DriverAdapter(PositionalAdapter):
    """The same, followed in Spark's driver."""

    uses_spark = True


def _change(entry: list[object], table: Table) -> Change:
    match entry:
        case ["put", list(values)]:
            return Insert("note", dict(zip(table.column_names, values, strict=False)))
        case ["add", str(name)]:
            return AddColumn("note", Column(name, str))
        case ["drop", str(name)]:
            return DropColumn("note", name)
        case ["rename", str(old), str(new)]:
            return AlterColumn("note", old, Column(new, str))
    raise AssertionError(entry)


def _after(table: Table, changes: Sequence[Change]) -> Table:
    columns = list(table.columns)
    for change in changes:
        match change:
            case AddColumn(_, column):
                columns.append(column)
            case DropColumn(_, name):
                columns = [column for column in columns if column.name != name]
            case AlterColumn(_, old, column):
                columns = [column if each.name == old else each for each in columns]
    return Table("note", columns)


def _rows_after(rows: Mapping[object, Row], change: Change) -> dict[object, Row]:
    match change:
        case Insert(_, row):
            return {**rows, row["id"]: row}
        case AlterColumn(_, old, column):
            return {key: {column.name if n == old else n: v for n, v in row.items()} for key, row in rows.items()}
        case DropColumn(_, gone):
            return {key: {name: value for name, value in row.items() if name != gone} for key, row in rows.items()}
    return dict(rows)
