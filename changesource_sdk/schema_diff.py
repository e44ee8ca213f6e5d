"""From one set of tables to another, as schema changes a consumer can apply in order. Pure.

Tables and columns are told apart by identities that outlive their names, so a rename is not taken for a drop and a
create, however many changes lie between. The order: indexes that go, tables that go, renamed tables, columns (dropped,
renamed or altered, added), new tables, new indexes. Names that are swapped pass through a third one. A table whose
key is another one is dropped and created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameTable,
    SchemaChange,
)
from changesource_sdk.schema import PUBLIC, Column, Default, Index, Table


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A declared table with its identity, and those of its columns in their order."""

    id: int
    table: Table
    column_ids: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its full name."""
        return self.table.full_name

    @property
    def columns(self) -> Mapping[int, Column]:
        """Columns by identity."""
        return dict(zip(self.column_ids, self.table.columns, strict=True))

    @property
    def key_ids(self) -> tuple[int, ...]:
        """The identities of its key columns."""
        ids = {column.name: number for number, column in self.columns.items()}
        return tuple(ids[name] for name in self.table.key)


@dataclass(frozen=True, slots=True)
class SchemaDiff:
    """Schema changes in order, the identities of tables that begin empty, and the pairs of those that stay."""

    changes: tuple[SchemaChange, ...]
    created: frozenset[int]
    kept: tuple[tuple[KnownTable, KnownTable], ...]


AddedDefault = Callable[[int, int], Default]
"""The default that existing rows have in an added column, by the identities of table and column."""


def schema_diff(
    old: Sequence[KnownTable], new: Sequence[KnownTable], default: AddedDefault, *, key_index_follows: bool = False
) -> SchemaDiff:
    """What leads a consumer from one set of tables to another.

    A rename leaves the key's index its old name. Where no other index can have such a name, `key_index_follows` gives
    it the new one, so that a later table finds its own free.
    """
    before = {table.id: table for table in old}
    kept = [(was, now) for now in new if (was := before.get(now.id)) is not None and was.key_ids == now.key_ids]
    stay = {now.id for _, now in kept}
    changes = [
        *(change for pair in kept for change in _dropped_indexes(*pair)),
        *(DropTable(table.name) for table in old if table.id not in stay),
        *_renamed_tables(kept, key_index_follows),
        *(change for pair in kept for change in _altered_columns(*pair, default)),
        *(CreateTable(table.table) for table in new if table.id not in stay),
        *(change for pair in kept for change in _created_indexes(*pair)),
    ]
    return SchemaDiff(tuple(changes), frozenset(table.id for table in new if table.id not in stay), tuple(kept))


def _free_order(renames: Mapping[str, tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Renames of identities one by one so that no name is taken; of two that swap, one goes aside first."""
    waiting = dict(renames)
    while waiting:
        free = next((old for old, (_, new) in waiting.items() if new == old or new not in waiting), None)
        if free is not None:
            number, target = waiting.pop(free)
            yield number, free, target
        else:
            old = next(iter(waiting))
            number, target = waiting.pop(old)
            aside = f"{target}_moving_{number}"
            yield number, old, aside
            waiting[aside] = number, target


def _renamed_tables(kept: Sequence[tuple[KnownTable, KnownTable]], key_index_follows: bool) -> Iterator[SchemaChange]:
    tables = {was.id: was.table for was, _ in kept}
    for number, old, new in _free_order({was.name: (was.id, now.name) for was, now in kept if was.name != now.name}):
        yield RenameTable(old, new)
        before, after = (replace(tables[number], name=name, schema=PUBLIC).key_index for name in (old, new))
        if key_index_follows and before and after:
            yield CreateIndex(after)
            yield DropIndex(before.full_name)


def _altered_columns(was: KnownTable, now: KnownTable, default: AddedDefault) -> Iterator[SchemaChange]:
    there, here = was.columns, now.columns
    yield from (DropColumn(now.name, column.name) for number, column in there.items() if number not in here)
    altered = {there[i].name: (i, column.name) for i, column in here.items() if i in there and there[i] != column}
    for number, old, new in _free_order(altered):
        yield AlterColumn(now.name, old, replace(here[number], name=new))
    for number, column in here.items():
        if number not in there:
            yield AddColumn(now.name, replace(column, default=default(now.id, number)))


def _kept_indexes(was: KnownTable, now: KnownTable) -> dict[Index, Index]:
    """The old indexes by what they have become through renames alone; another schema takes new ones."""
    if was.table.schema != now.table.schema:
        return {}
    names = {column.name: now.columns[i].name for i, column in was.columns.items() if i in now.columns}
    kept = {}
    for index in was.table.indexes:
        columns = [(names.get(name, ""), direction) for name, direction in index.directions.items()]
        become = replace(index, columns=columns, table=now.name)
        if become in now.table.indexes:
            kept[become] = index
    return kept


def _dropped_indexes(was: KnownTable, now: KnownTable) -> Iterator[SchemaChange]:
    remaining = set(_kept_indexes(was, now).values())
    return (DropIndex(index.full_name) for index in was.table.indexes if index not in remaining)


def _created_indexes(was: KnownTable, now: KnownTable) -> Iterator[SchemaChange]:
    there = _kept_indexes(was, now)
    return (CreateIndex(index) for index in now.table.indexes if index not in there)
