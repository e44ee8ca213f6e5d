"""An upstream of rows in memory that an adapter lists, and a log that keeps a position and the rows of a consumer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from changesource_sdk import (
    AddColumn,
    AlterColumn,
    ByDifference,
    Change,
    Column,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    Position,
    ResyncRequired,
    Row,
    Table,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.by_difference import Item

NOTE = Table("note", [Column("id", int), Column("text", str)])
Rows = dict[str, dict[object, dict[str, object]]]


@dataclass
class Upstream:
    """Rows by table and key. `listed` is called before each row that is listed."""

    tables: list[Table] = field(default_factory=lambda: [NOTE])
    rows: Rows = field(default_factory=lambda: {"note": {}})
    before_row: Callable[[int], None] = lambda number: None

    def put(self, id: int, text: str | None, table: str = "note", **more: object) -> None:
        self.rows[table][id] = {"id": id, "text": text, **more}


class ShelfAdapter(ByDifference):
    """Lists an upstream of this process."""

    upstreams: ClassVar[dict[str, Upstream]] = {}

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.key = state

    @property
    def upstream(self) -> Upstream:
        return self.upstreams[self.key]

    def tables(self) -> Sequence[Table]:
        return self.upstream.tables

    def rows(self, table: str) -> Iterator[Item]:
        for number, row in enumerate(list(self.upstream.rows[table].values())):
            self.upstream.before_row(number)
            yield row


@dataclass
class Log:
    """What is durable downstream: a position, and the rows that a consumer has there."""

    position: Position = None
    tables: Rows = field(default_factory=dict)
    snapshots: int = 0
    transactions: int = 0

    def copy(self) -> Log:
        return deepcopy(self)

    def restore(self, copy: Log) -> None:
        """Continue from a copy; what was counted stays."""
        self.position, self.tables = deepcopy(copy.position), deepcopy(copy.tables)

    def append(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            apply(self.tables, change)
        self.position = transaction.position
        self.transactions += 1


def apply(tables: Rows, change: Change) -> None:
    """Apply one change strictly: an insert needs a free key, an update and a delete an existing row."""
    match change:
        case Insert(table, row):
            assert row["id"] not in tables[table], f"insert of a row that is there: {row}"
            tables[table][row["id"]] = dict(row)
        case Update(table, row):
            tables[table][row["id"]] = {**tables[table].pop(row["id"]), **row}
        case Delete(table, key):
            del tables[table][key["id"]]
        case Truncate(names):
            for name in names:
                tables[name].clear()
        case CreateTable(table):
            assert table.full_name not in tables
            tables[table.full_name] = {}
        case DropTable(name):
            del tables[name]
        case AddColumn(table, column):
            for row in tables[table].values():
                row[column.name] = None
        case DropColumn(table, name):
            for row in tables[table].values():
                row.pop(name, None)
        case AlterColumn():
            pass
        case _:
            raise AssertionError(f"unexpected change {change}")


class Pipeline:
    """Runs an adapter over a state folder into a log, step by step, as the real pipeline does."""

    def __init__(self, folder: Path, adapter: type[ShelfAdapter] = ShelfAdapter) -> None:
        self.state = folder / "state"
        self.upstream = ShelfAdapter.upstreams[str(self.state)] = Upstream()
        self.log = Log()
        self._make = adapter
        self.restart()

    def restart(self) -> None:
        """A new process: only what is on disk is left."""
        self.adapter = self._make(str(self.state))

    def snapshot(self) -> None:
        snapshot = self.adapter.snapshot()
        assert snapshot.tables is not None
        assert snapshot.close is not None
        tables: Rows = {table.full_name: {} for table in snapshot.tables}
        for partition in snapshot.partitions:
            for row in partition.rows():
                apply(tables, Insert(partition.table, row))
        snapshot.close()
        self.log.tables, self.log.position = tables, snapshot.position
        self.log.snapshots += 1

    def poll(self) -> list[Transaction]:
        """The transactions of one poll, read and not appended."""
        self.adapter._is_resting = False
        return [
            Transaction(each.position, list(each.changes), each.commit_time_ms)
            for each in self.adapter.changes(self.log.position)
        ]

    def sync(self, *, acknowledge: bool = True) -> None:
        """One poll into the log, or a snapshot if the position is lost."""
        try:
            for transaction in self.poll():
                self.log.append(transaction)
        except ResyncRequired:
            self.restart()
            self.snapshot()
        if acknowledge:
            self.adapter.acknowledge(self.log.position)

    def save(self, target: Path) -> None:
        """Copy the state folder."""
        self.state.mkdir(exist_ok=True)
        shutil.copytree(self.state, target)

    def restore(self, source: Path) -> None:
        """Replace the state folder by a copy."""
        shutil.rmtree(self.state, ignore_errors=True)
        shutil.copytree(source, self.state)

    def rows(self, table: str = "note") -> Mapping[object, Row]:
        return self.log.tables[table]

    def check(self) -> None:
        """Assert that a consumer of the log has exactly the upstream's rows."""
        assert self.log.tables == self.upstream.rows
