"""From one catalog to another, as schema changes a consumer can apply in order (pure).

The order: indexes that go, tables that go, renamed tables, columns (dropped, renamed, altered, added), new tables,
new indexes. Names that are swapped pass through a third one. `migration` also says which tables' rows must be sent
whole after the schema changes, in the same transaction: new tables, and those whose rows the schema change itself
altered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from adapters.sqlite.catalog import Catalog, ColumnDef, IndexDef, TableDef
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
from changesource_sdk.schema import Default, split_name

_NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")
_TEXT = re.compile(r"'([^'\\]*)'")


@dataclass(frozen=True, slots=True)
class Migration:
    """Schema changes in order, the tables whose rows are all new, and those whose rows must be sent again."""

    changes: tuple[SchemaChange, ...]
    created: tuple[TableDef, ...]
    resent: tuple[TableDef, ...]


def migration(old: Catalog, new: Catalog) -> Migration:
    """What leads a consumer from one catalog to another."""
    kept = [(before, after) for after in new.tables if (before := old.table(after.id)) is not None]
    created = tuple(table for table in new.tables if old.table(table.id) is None)
    dropped = [table for table in old.tables if new.table(table.id) is None]
    changes = [
        *(change for before, after in kept for change in _dropped_indexes(before, after)),
        *(DropTable(table.name) for table in dropped),
        *_renamed_tables(kept),
        *(change for before, after in kept for change in _altered_columns(before, after)),
        *(CreateTable(table.declared()) for table in created),
        *(change for before, after in kept for change in _created_indexes(before, after)),
    ]
    return Migration(tuple(changes), created, tuple(after for before, after in kept if _rows_altered(before, after)))


def known_default(column: ColumnDef) -> Default:
    """The default that existing rows have, if it is one the consumer can apply by itself."""
    text = (column.default or "").strip()
    if column.data_type == "text" and (match := _TEXT.fullmatch(text)):
        return match[1]
    if column.data_type == "bool" and text.lower() in ("true", "false", "0", "1"):
        return text.lower() in ("true", "1")
    if column.data_type in ("int8", "float8", "numeric") and _NUMBER.fullmatch(text):
        number = float(text) if "." in text else int(text)
        return number if column.data_type != "int8" or isinstance(number, int) else None
    return None


def _has_default(column: ColumnDef) -> bool:
    return column.default is not None and column.default.strip().upper() != "NULL"


def _rows_altered(before: TableDef, after: TableDef) -> bool:
    """Whether rows that no trigger saw differ from what the consumer makes of the schema changes."""
    there = {column.id: column for column in before.columns}
    for column in after.columns:
        if column.id not in there:
            if _has_default(column) and known_default(column) is None:
                return True
        elif there[column.id].data_type != column.data_type:
            return True
    return before.revision != after.revision


def _renamed_tables(kept: list[tuple[TableDef, TableDef]]) -> Iterator[SchemaChange]:
    """Renames in an order in which no name is taken."""
    waiting = {before.name: (before, after.name) for before, after in kept if before.name != after.name}
    while waiting:
        free = next((name for name, (_, target) in waiting.items() if target not in waiting), None)
        if free is not None:
            yield from _renamed(*waiting.pop(free))
        else:
            before, target = waiting.pop(next(iter(waiting)))
            aside = replace(before, name=f"{before.name}_moving_{before.id}")
            yield from _renamed(before, aside.name)
            waiting[aside.name] = (aside, target)


def _renamed(before: TableDef, target: str) -> Iterator[SchemaChange]:
    """A rename leaves the key index its old name, which a later table may want: so that one is replaced."""
    old_index, new_index = before.declared().key_index, replace(before, name=target).declared().key_index
    yield RenameTable(before.name, target)
    if old_index and new_index:
        yield CreateIndex(new_index)
        yield DropIndex(old_index.full_name)


def _altered_columns(before: TableDef, after: TableDef) -> Iterator[SchemaChange]:
    there, here = {c.id: c for c in before.columns}, {c.id: c for c in after.columns}
    yield from (DropColumn(after.name, column.name) for column in before.columns if column.id not in here)
    yield from _renamed_columns(after.name, {there[c.id].name: c for c in after.columns if c.id in there}, there)
    for column in after.columns:
        if column.id not in there:
            yield AddColumn(after.name, replace(column.declared(), default=known_default(column)))


def _renamed_columns(table: str, kept: dict[str, ColumnDef], there: dict[int, ColumnDef]) -> Iterator[SchemaChange]:
    waiting = {name: column for name, column in kept.items() if _differs(there[column.id], column)}
    while waiting:
        others = waiting.keys()
        free = next((n for n, c in waiting.items() if c.name == n or c.name not in others), None)
        if free is not None:
            yield AlterColumn(table, free, waiting.pop(free).declared())
        else:
            name, column = next(iter(waiting.items()))
            aside = f"{column.name}_moving_{column.id}"
            yield AlterColumn(table, name, replace(waiting.pop(name), name=aside).declared())
            waiting[aside] = column


def _differs(before: ColumnDef, after: ColumnDef) -> bool:
    return (before.name, before.data_type, before.not_null) != (after.name, after.data_type, after.not_null)


def _indexes_now(before: TableDef, after: TableDef) -> dict[IndexDef, IndexDef]:
    """The old indexes by what they have become through renamed columns alone; another schema takes new ones."""
    if split_name(before.name)[0] != split_name(after.name)[0]:
        return {}
    names = {column.id: column.name for column in after.columns}
    now = {column.name: names.get(column.id, "") for column in before.columns}
    become = {}
    for index in before.indexes:
        columns = tuple((now[name], direction) for name, direction in index.columns)
        become[replace(index, columns=columns)] = index
    return become


def _dropped_indexes(before: TableDef, after: TableDef) -> Iterator[SchemaChange]:
    remaining = {index for become, index in _indexes_now(before, after).items() if become in after.indexes}
    for index in before.indexes:
        if index not in remaining:
            yield DropIndex(index.declared(before.name).full_name)


def _created_indexes(before: TableDef, after: TableDef) -> Iterator[SchemaChange]:
    there = _indexes_now(before, after)
    for index in after.indexes:
        if index not in there:
            yield CreateIndex(index.declared(after.name))
