"""A store with everything an adapter can meet, and a right adapter for it, in which bugs are planted.

The store keeps its transactions until they are acknowledged, and takes schema changes. `RightAdapter` passes the whole
suite; each planted bug is a small difference from it.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from changesource_sdk.adapter import (
    AddColumn,
    Change,
    Column,
    CreateTable,
    Delete,
    DropColumn,
    Insert,
    Position,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    Update,
)
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
            case CreateTable() | AddColumn():
                self.schema = self.schema.apply(change)
                self.rows.setdefault("item" if isinstance(change, AddColumn) else change.table.full_name, {})
            case DropColumn(table, gone):
                self.schema = self.schema.apply(change)
                self.rows[table] = {
                    key: {name: value for name, value in row.items() if name != gone}
                    for key, row in self.rows[table].items()
                }
            case _:
                raise NotImplementedError(type(change).__name__)

    def forget(self, upto: int) -> None:
        with self.changed:
            self.kept = {number: batch for number, batch in self.kept.items() if number > upto}

    def after(self, position: int) -> list[tuple[int, tuple[Change, ...]]]:
        with self.changed:
            assert position + 1 >= min(self.kept, default=self.last + 1), "asked for what was forgotten"
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

    def create(self, folder: Path) -> None:
        self._name = str(folder)
        STORES[self._name] = Workshop()

    def settings(self) -> Mapping[str, object]:
        return {"name": self._name}

    def commit(self, changes: Sequence[Change]) -> None:
        STORES[self._name].commit(pickle.loads(pickle.dumps(tuple(changes))))

    def retained(self) -> int:
        return len(STORES[self._name].kept)

    def close(self) -> None:
        STORES.pop(self._name, None)


def harness_of(adapter: type[RightAdapter], patience: float = 60.0) -> WorkshopHarness:
    """A harness for one of the adapters."""
    made = WorkshopHarness()
    made.adapter, made.patience = adapter, patience  # type: ignore[misc]
    return made
