"""What mappings make of changes, along the stream: rows by their table's mapping, schema changes by what is kept.

A filter is decided on the row before and the row after a change. Where the store gives the row before (an `old_key`
or a deleted key with every column), a row that enters becomes an insert, one that leaves a delete, one that stays
outside nothing. Where it does not, the row may have been on either side: then a row that passes is inserted, which
replaces, and one that does not is deleted, which does nothing to a consumer without it. Both ways end in the same
rows.

The mapper follows the store's schema: `tables` is what the store has at this point of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropIndex,
    DropTable,
    Insert,
    RenameTable,
    Row,
    Truncate,
    Update,
)
from changesource_sdk.column_changes import ColumnChange, altered_table
from changesource_sdk.errors import InvalidChange, ResyncRequired
from changesource_sdk.pipeline.mapping.declare import TableMapping
from changesource_sdk.pipeline.mapping.row import RowMapper
from changesource_sdk.pipeline.mapping.table import MappedTable, map_index, map_table
from changesource_sdk.schema import Table, canonical_name


class ChangeMapper:
    """Maps a stream of changes in order. Invariant: each mapper fits the table as the last schema change left it."""

    def __init__(self, tables: Mapping[str, MappedTable], mappings: Mapping[str, TableMapping]) -> None:
        self._mappings = {canonical_name(name): mapping for name, mapping in mappings.items()}
        # By the upstream's table name; replaced by schema changes as they are mapped.
        self._mappers = {name: RowMapper(table) for name, table in tables.items()}

    def mapper(self, table: str) -> RowMapper | None:
        """The mapper of a table that has a mapping."""
        name = canonical_name(table)
        return self._mappers.get(name) if name in self._mappings else None

    def changes(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The changes as consumers get them."""
        for change in changes:
            yield from self.change(change)

    def change(self, change: Change) -> Iterator[Change]:
        """What becomes of one change: nothing, or one or two."""
        match change:
            case Insert(table, row):
                mapper = self.mapper(table)
                yield from (change,) if mapper is None else _insert(mapper, row)
            case Update(table, row, old_key):
                mapper = self.mapper(table)
                yield from (change,) if mapper is None else _update(mapper, row, old_key)
            case Delete(table, key):
                mapper = self.mapper(table)
                yield from (change,) if mapper is None else _delete(mapper, key)
            case Truncate(tables):
                yield Truncate([self._target(name) for name in tables])
            case RenameTable(old, new):
                yield self._rename(old, new)
            case CreateTable(table):
                yield self._create(table)
            case DropTable(name):
                yield DropTable(self._target(name))
                self._mappers.pop(canonical_name(name), None)
            case DropIndex():
                # Consumers without it ignore that.
                yield change
            case AddColumn() | DropColumn() | AlterColumn() | CreateIndex():
                yield from self._altered(change)

    def _target(self, name: str) -> str:
        mapper = self.mapper(name)
        return name if mapper is None else mapper.table.target.full_name

    def _create(self, table: Table) -> CreateTable:
        mapping = self._mappings.get(table.full_name)
        if mapping is None:
            return CreateTable(table)
        mapped = map_table(table, mapping)
        self._mappers[table.full_name] = RowMapper(mapped)
        return CreateTable(mapped.target)

    def _rename(self, old: str, new: str) -> RenameTable:
        for name in (canonical_name(old), canonical_name(new)):
            if name in self._mappings:
                raise ResyncRequired(
                    "mapped-table-renamed",
                    f"the store renamed {old} to {new}, and mapping.{name} names one of them",
                    where=f"table {name}",
                    fix=f"if {name} is gone, give mapping.{name} the table's new name; the store is read anew",
                )
        return RenameTable(old, new)

    def _altered(self, change: ColumnChange | CreateIndex) -> Iterator[Change]:
        mapper = self.mapper(change.index.table if isinstance(change, CreateIndex) else change.table)
        if mapper is None:
            yield change
            return
        before = mapper.table
        if isinstance(change, CreateIndex):
            if (index := map_index(change.index, before.kept)) is not None:
                yield CreateIndex(replace(index, table=before.target.full_name))
            return
        after = map_table(replace(altered_table(before.source, change), indexes=()), before.mapping)
        self._mappers[before.source.full_name] = RowMapper(after)
        yield from _column_change(after, change)


def _column_change(after: MappedTable, change: ColumnChange) -> Iterator[Change]:
    """The change of the consumers' column, if they have it and no expression computes it."""
    target, mapping = after.target.full_name, after.mapping
    match change:
        case AddColumn(_, column):
            name = mapping.name_of(column.name)
            if name is not None and name not in mapping.columns:
                yield AddColumn(target, replace(column, name=name))
        case DropColumn(_, gone):
            name = mapping.name_of(gone)
            if name is not None and name not in mapping.columns:
                yield DropColumn(target, name)
        case AlterColumn(_, old_name, column):
            old, new = mapping.name_of(old_name), mapping.name_of(column.name)
            if old is not None and new is not None:
                renamed = replace(column, name=new)
                computed = after.target.column(new) if new in mapping.columns else None
                yield AlterColumn(target, old, computed or renamed)


def _insert(mapper: RowMapper, row: Row) -> Iterator[Change]:
    target, row = mapper.table.target.full_name, mapper.filled(row)
    if mapper.passes(row):
        yield Insert(target, mapper.row(row))
    elif mapper.table.source.key:
        # An insert replaces; what it replaces may have passed.
        yield Delete(target, mapper.key(row))


def _update(mapper: RowMapper, row: Row, old_key: Row | None) -> Iterator[Change]:
    target = mapper.table.target.full_name
    before = old_key if old_key is not None and mapper.is_whole(old_key) else None
    mapped_key = None if old_key is None else mapper.key(old_key)
    if not mapper.filters:
        yield Update(target, _mapped_part(mapper, row, before), mapped_key)
        return
    after = row if before is None else {**before, **row}
    passed, passes = None if before is None else mapper.passes(before), mapper.passes(after)
    if passes and passed:
        yield Update(target, mapper.row(after), mapped_key)
    elif passes:
        if passed is None and mapped_key is not None:
            yield Delete(target, mapped_key)
        yield Insert(target, mapper.row(_whole(mapper, after)))
    elif passed is not False:
        yield Delete(target, mapper.key(row) if mapped_key is None else mapped_key)


def _mapped_part(mapper: RowMapper, row: Row, before: Row | None) -> dict[str, object]:
    """An update without filter may carry a part of the row; the row before fills in what expressions need."""
    if before is None or mapper.is_whole(row):
        return mapper.row(row)
    return mapper.row({**before, **row})


def _whole(mapper: RowMapper, row: Row) -> Row:
    if not mapper.is_whole(row):
        missing = sorted(set(mapper.table.source.column_names) - row.keys())
        raise InvalidChange(
            "mapping-needs-column",
            f"a row that may enter the filter must be whole, but the update carries no {', '.join(missing)}",
            where=f"{mapper.table.key}.filter, table {mapper.table.source.full_name}",
            fix="let the store send whole rows (Postgres: REPLICA IDENTITY FULL), or drop the filter",
        )
    return row


def _delete(mapper: RowMapper, key: Row) -> Iterator[Change]:
    if mapper.is_whole(key) and not mapper.passes(key):
        return
    yield Delete(mapper.table.target.full_name, mapper.key(key))
