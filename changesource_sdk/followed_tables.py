"""An adapter's tables along its stream: those of one position, then what each schema change makes of them.

For readers of changes that nobody has validated yet. A change that does not fit is left out: the encoder, which gets
the same changes, refuses it with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from changesource_sdk.adapter import (
    Adapter,
    AddColumn,
    AlterColumn,
    Change,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameTable,
    UsingTables,
)
from changesource_sdk.column_changes import ColumnChange, altered_table
from changesource_sdk.schema import PUBLIC, Index, Table, canonical_name


class FollowedTables:
    """Tables as of the last change that was followed."""

    def __init__(self, tables: Sequence[Table]) -> None:
        # The same object until a change of the schema is followed; written by `follow`.
        self.tables: tuple[Table, ...] = tuple(tables)

    def give_to(self, adapter: Adapter) -> None:
        """Give an adapter its tables before `changes`, if it uses them. Call it in the thread of `changes`."""
        if isinstance(adapter, UsingTables):
            adapter.use_tables(self.tables)

    def following(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The same changes; each is followed when the next one is requested."""
        for change in changes:
            yield change
            self.follow(change)

    def follow(self, change: Change) -> None:
        """Apply a change, if it is one of the schema."""
        match change:
            case CreateTable(table):
                self._without(table.full_name)
                self.tables = (*self.tables, without_defaults(table))
            case DropTable(name):
                self._without(canonical_name(name))
            case RenameTable(old, new):
                self._replace(canonical_name(old), lambda table: replace(table, name=new, schema=PUBLIC))
            case AddColumn(name) | DropColumn(name) | AlterColumn(name):
                self._replace(canonical_name(name), lambda table: _altered(table, change))
            case CreateIndex(index):
                self._replace(index.table, lambda table: replace(table, indexes=(*table.indexes, index)))
            case DropIndex(name):
                self.tables = tuple(_without_index(table, canonical_name(name)) for table in self.tables)
            case _:
                pass

    def _without(self, name: str) -> None:
        self.tables = tuple(table for table in self.tables if table.full_name != name)

    def _replace(self, name: str, changed: Callable[[Table], Table]) -> None:
        self.tables = tuple(changed(table) if table.full_name == name else table for table in self.tables)


def without_defaults(table: Table) -> Table:
    """The table without the defaults of its columns, which matter only when a column is added."""
    bare = tuple(replace(column, default=None, default_sql=None) for column in table.columns)
    return replace(table, columns=bare)


def _altered(table: Table, change: ColumnChange) -> Table:
    indexes: Sequence[Index] = table.indexes
    if isinstance(change, AlterColumn):
        indexes = [_with_column(index, change.old_name, change.column.name) for index in indexes]
    return without_defaults(replace(altered_table(table, change), indexes=indexes))


def _with_column(index: Index, old: str, new: str) -> Index:
    return replace(index, columns=[(new if name == old else name, way) for name, way in index.directions.items()])


def _without_index(table: Table, name: str) -> Table:
    return replace(table, indexes=[index for index in table.indexes if index.full_name != name])
