"""The one place that says what each kind of change does to a consumer's tables and indexes.

`TableFold` keeps the names: which tables exist after a sequence of changes, and which indexes they have. A subclass
decides what is kept of a single table:

- `protocol.fold.rows.FoldedTables`: its rows, for the fake cache, `verify`, the conformance suite and `check`;
- `protocol.rules.replica.CheckedReplica`: its columns and the keys of its rows, for the rules of a legal stream;
- `changesource_sdk.pipeline.compaction.history.SchemaHistory`: its column changes over time, for compaction.

A change that does not fit is ignored, because a fold describes a consumer and does not judge: `protocol.rules` names
what is wrong with a stream.

Two folds stay separate. The replica's SQL catalog (`reference_cache.replica.catalog`) refuses what does not fit and
returns SQL. The sender's schema (`changesource_sdk.pipeline.encoding.consumer_schema`) must not share code with the
rules, so that each finds the other's mistakes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from protocol import changes as wire
from protocol.fold.indexes import Indexes, renamed
from protocol.specs import ColumnSpec, JsonObject, Relation, TableSpec

T = TypeVar("T")


class TableFold(ABC, Generic[T]):
    """Tables and indexes by their names in the replica; `T` is what is kept of a table."""

    def __init__(self) -> None:
        # Both are written by `apply_change` only (and by subclasses that restore an earlier state).
        self.tables: dict[str, T] = {}
        self.indexes = Indexes()

    def apply(self, changes: Iterable[wire.Change]) -> None:
        """Apply changes in order, usually those of one transaction."""
        for change in changes:
            self.apply_change(change)

    def apply_change(self, change: wire.Change) -> None:
        """Apply one change. Raises only what the methods of a subclass raise."""
        match change:
            case wire.Insert():
                if (table := self.table(change.relation.replica_name)) is not None:
                    self.insert(table, change.relation, change.new)
            case wire.Update():
                if (table := self.table(change.relation.replica_name)) is not None:
                    self.update(table, change.relation, change.key, change.new)
            case wire.Delete():
                if (table := self.table(change.relation.replica_name)) is not None:
                    self.delete(table, change.relation, change.key)
            case wire.Truncate():
                for relation in change.relations:
                    if (table := self.table(relation.replica_name)) is not None:
                        self.truncate(table)
            case wire.CreateTable():
                self.bind(change.spec.replica_name, self.create(change.spec))
            case wire.RenameTable():
                self._rename(change.old.replica_name, change.new.replica_name)
            case wire.DropTable():
                self.bind(change.id.replica_name, None)
                self.indexes.drop_table(change.id.replica_name)
            case wire.AddColumn() | wire.UpdateColumn() | wire.DropColumn():
                if (table := self.table(change.table.replica_name)) is not None:
                    self._change_column(table, change)
            case wire.CreateIndex():
                self.indexes.create(change.spec)
            case wire.DropIndex():
                self.indexes.drop(change.id.replica_name)
            case _:
                pass  # the metadata of a table, and backfill, concern neither its shape nor the rows of the stream

    def table(self, name: str) -> T | None:
        """The table that a change names. None: there is no such table, and the change is ignored."""
        return self.tables.get(name)

    def bind(self, name: str, table: T | None) -> None:
        """Give a table a name; with None, free the name."""
        if table is None:
            self.tables.pop(name, None)
        else:
            self.tables[name] = table

    @abstractmethod
    def create(self, spec: TableSpec) -> T:
        """What is kept of a new, empty table."""

    @abstractmethod
    def change_column(self, table: T, change: wire.ColumnChange) -> None:
        """A column was added, dropped, renamed or retyped. The indexes of the table follow by themselves."""

    @abstractmethod
    def insert(self, table: T, relation: Relation, row: JsonObject) -> None:
        """A whole row, which replaces the row of the same key."""

    @abstractmethod
    def update(self, table: T, relation: Relation, old_key: JsonObject | None, row: JsonObject) -> None:
        """New values of a row; `old_key` is None if its key did not change."""

    @abstractmethod
    def delete(self, table: T, relation: Relation, key: JsonObject) -> None:
        """The row of this key is gone, if there was one."""

    @abstractmethod
    def truncate(self, table: T) -> None:
        """All rows are gone."""

    def _rename(self, old: str, new: str) -> None:
        table = self.table(old)
        if table is not None:
            self.bind(old, None)
            self.bind(new, table)
        self.indexes.rename_table(old, new)

    def _change_column(self, table: T, change: wire.ColumnChange) -> None:
        self.change_column(table, change)
        if isinstance(change, wire.UpdateColumn):
            self.indexes.rename_column(change.table.replica_name, change.old.name, change.new.name)


def changed_columns(columns: Mapping[str, ColumnSpec], change: wire.ColumnChange) -> dict[str, ColumnSpec]:
    """The columns of a table after a change; a renamed column keeps its place."""
    if isinstance(change, wire.AddColumn):
        return {**columns, change.column.name: change.column.spec}
    if isinstance(change, wire.DropColumn):
        return {name: spec for name, spec in columns.items() if name != change.column}
    return {**renamed(columns, change.old.name, change.new.name), change.new.name: change.new.spec}
