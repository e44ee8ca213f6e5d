"""A store with everything an adapter can meet, and a right adapter for it, in which bugs are planted.

The store keeps its transactions until they are acknowledged, and takes schema changes. `RightAdapter` passes the whole
suite; each planted bug is a small difference from it.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    Column,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    Position,
    RenameTable,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.errors import position_lost
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.testing.conformance import Harness

ITEM = Table(
    "item",
    [
        Column("id", int),
        Column("title", str),
        Column("amount", int),
        Column("made", "timestamptz"),
        Column("extra", dict),
        Column("rate", float),
    ],
)

STORES: dict[str, Workshop] = {}
"""By name, so that a pickled adapter finds its store again, as it would find a server."""


class Workshop:
    """Tables, rows, and the transactions not yet forgotten, numbered from 1."""

    def __init__(self) -> None:
        self.schema = ConsumerSchema().apply(CreateTable(ITEM))
        self.rows: dict[str, dict[object, Row]] = {"item": {}}
        self.kept: dict[int, tuple[Change, ...]] = {}
        self.last = 0
        self.changed = threading.Condition()

    def commit(self, changes: Iterable[Change]) -> None:
        with self.changed:
            batch = tuple(changes)
            for change in batch:
                self._apply(change)
            self.last += 1
            self.kept[self.last] = batch
            self.changed.notify_all()

    def _apply(self, change: Change) -> None:
        match change:
            case Insert(table, row):
                self.rows[table][row["id"]] = row
            case Update(table, row, old_key):
                old = self.rows[table].pop((old_key or row)["id"])
                self.rows[table][row["id"]] = {**old, **row}
            case Delete(table, key):
                del self.rows[table][key["id"]]
            case Truncate(tables):
                for table in tables:
                    self.rows[table].clear()
            case (
                CreateTable()
                | DropTable()
                | RenameTable()
                | AddColumn()
                | DropColumn()
                | AlterColumn() as schema_change
            ):
                self.schema = self.schema.apply(schema_change)
                self._apply_to_rows(schema_change)
            case _:
                raise NotImplementedError(type(change).__name__)

    def _apply_to_rows(self, change: Change) -> None:
        match change:
            case CreateTable(table):
                self.rows[table.full_name] = {}
            case DropTable(name):
                del self.rows[name]
            case RenameTable(old, new):
                self.rows[new] = self.rows.pop(old)
            case AddColumn(table, column):
                self._each_row(table, lambda row: {**row, column.name: column.default})
            case DropColumn(table, gone):
                self._each_row(table, lambda row: {name: value for name, value in row.items() if name != gone})
            case AlterColumn(table, old, column):
                self._each_row(table, lambda row: {column.name if n == old else n: v for n, v in row.items()})

    def _each_row(self, table: str, changed: Callable[[Row], Row]) -> None:
        self.rows[table] = {key: changed(row) for key, row in self.rows[table].items()}

    def forget(self, upto: int) -> None:
        with self.changed:
            self.kept = {number: batch for number, batch in self.kept.items() if number > upto}

    def after(self, position: int) -> list[tuple[int, tuple[Change, ...]]]:
        with self.changed:
            if position + 1 < min(self.kept, default=self.last + 1):
                raise position_lost("the transactions after it were forgotten")
            return [(number, batch) for number, batch in self.kept.items() if number > position]


class RightAdapter:
    """Does everything right."""

    poll_interval = 0.005

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def store(self) -> Workshop:
        return STORES[self._name]

    def tables(self) -> Sequence[Table]:
        return list(self.store.schema.tables.values())

    def snapshot(self) -> Snapshot:
        with self.store.changed:
            partitions = [RowsPartition(table, list(rows.values())) for table, rows in self.store.rows.items()]
            return Snapshot(self.store.last, partitions, tables=self.tables())

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        for number, batch in self.store.after(after):
            yield Transaction(number, batch)

    def acknowledge(self, position: Position) -> None:
        assert isinstance(position, int)
        self.store.forget(position)


class WorkshopHarness(Harness):
    """The store under the suite; `durable` is lacking, since it lives in this process."""

    adapter = RightAdapter
    lacks = ("durable",)
    supports = ("schema changes",)

    def create(self, folder: Path) -> None:
        self._name = str(folder)
        STORES[self._name] = Workshop()

    def settings(self) -> Mapping[str, object]:
        return {"name": self._name}

    def commit(self, changes: Sequence[Change]) -> None:
        STORES[self._name].commit(pickle.loads(pickle.dumps(tuple(changes))))

    def retained(self) -> int:
        return len(STORES[self._name].kept)

    def forget(self) -> None:
        STORES[self._name].forget(STORES[self._name].last)

    def close(self) -> None:
        STORES.pop(self._name, None)


def harness_of(adapter: type[RightAdapter], patience: float = 60.0) -> WorkshopHarness:
    """A harness for one of the adapters."""
    made = WorkshopHarness()
    made.adapter, made.patience = adapter, patience  # type: ignore[misc]
    return made
