"""The difference of two sets of tables, as schema changes that a consumer can apply in order. Pure.

Tables and columns are compared by identities that survive renames, so a rename is not a drop and a create, however many
changes are between the two sets. The order: dropped indexes, dropped tables, renamed tables, columns (dropped, renamed
or altered, added), new tables, new indexes. Swapped names go through a temporary one. A table with another key is
dropped and created.
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
    """Schema changes in order, the identities of created tables, and (old, new) pairs of the others."""

    changes: tuple[SchemaChange, ...]
    created: frozenset[int]
    kept: tuple[tuple[KnownTable, KnownTable], ...]


AddedDefault = Callable[[int, int], Default]
"""The default that existing rows have in an added column, by the identities of table and column."""


def schema_diff(
    old: Sequence[KnownTable], new: Sequence[KnownTable], default: AddedDefault, *, key_index_follows: bool = False
) -> SchemaDiff:
    """The changes that take a consumer from one set of tables to another.

    After a rename, the index of the key keeps its old name. Where no other index can have such a name,
    `key_index_follows` renames it too, so that its old name is free for a later table.
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


def schema_diff_by_name(old: Sequence[Table], new: Sequence[Table]) -> SchemaDiff:
    """The same for tables and columns that are known by their names only: a rename is a drop and an add.

    Added columns are null in existing rows.
    """
    tables: dict[str, int] = {}
    columns: dict[str, int] = {}
    known = [
        [
            KnownTable(
                tables.setdefault(table.full_name, len(tables)),
                table,
                tuple(columns.setdefault(name, len(columns)) for name in table.column_names),
            )
            for table in side
        ]
        for side in (old, new)
    ]
    return schema_diff(known[0], known[1], lambda table, column: None)


def has_altered_kind(was: KnownTable, now: KnownTable) -> bool:
    """Whether a column has another kind of value than before: consumers need all rows again."""
    before = {number: column.kind for number, column in was.columns.items()}
    return any(before.get(number, column.kind) != column.kind for number, column in now.columns.items())


def _free_order(renames: Mapping[str, tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Orders renames so that every new name is free; of two that swap, one gets a temporary name first."""
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
    old_columns, new_columns = was.columns, now.columns
    yield from (
        DropColumn(now.name, column.name) for number, column in old_columns.items() if number not in new_columns
    )
    altered = {
        old_columns[i].name: (i, column.name)
        for i, column in new_columns.items()
        if i in old_columns and old_columns[i] != column
    }
    for number, old, new in _free_order(altered):
        yield AlterColumn(now.name, old, replace(new_columns[number], name=new))
    for number, column in new_columns.items():
        if number not in old_columns:
            yield AddColumn(now.name, replace(column, default=default(now.id, number)))


def _kept_indexes(was: KnownTable, now: KnownTable) -> dict[Index, Index]:
    """The old indexes, by the new index that renames alone make of them; none if the table is in another schema."""
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
    kept = _kept_indexes(was, now)
    return (CreateIndex(index) for index in now.table.indexes if index not in kept)
