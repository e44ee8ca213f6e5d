"""Which published tables and columns can be synced, with which key, and what the user should know of the others. Pure.

A consumer finds a row by a key whose columns the stream has in every update and delete: the replica identity. A table
whose updates cannot be expressed is skipped. A table without an identity is synced, since Postgres allows only inserts
in it. Names must suit the consumer and differ in more than case, since replicas are SQLite files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from adapters.postgres.catalog.model import STATE_SCHEMA, Catalog, ColumnDef, Identity, IndexDef, TableDef
from adapters.postgres.connection import quoted
from adapters.postgres.types import Types, Unsynced, column_for, is_rounded
from changesource_sdk import Column, ConfigurationError, Direction
from protocol.specs import RESERVED_TABLES, VERSION_COLUMN, replica_name

_TABLE_NAME = re.compile(r"[^\s.]+")
_KEY_TYPES = ("string", "number", "boolean")


@dataclass(frozen=True, slots=True)
class TableSelection:
    """Which of the published tables to sync, by name or glob (none: all); those in `always` are always synced."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    always: tuple[str, ...] = ()

    def wants(self, table: str) -> bool:
        """Whether the settings select a table of this full name."""
        if table in self.always:
            return True
        chosen = not self.include or any(fnmatchcase(table, pattern) for pattern in self.include)
        return chosen and not any(fnmatchcase(table, pattern) for pattern in self.exclude)


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """A column as Postgres describes it."""

    number: int
    name: str
    type_oid: int
    modifier: int
    not_null: bool
    generated: str
    default: str | None


@dataclass(frozen=True, slots=True)
class PublishedIndex:
    """An index as Postgres describes it; a `plain` one is valid, has only columns and covers all rows."""

    oid: int
    name: str
    unique: bool
    primary: bool
    is_identity: bool
    immediate: bool
    plain: bool
    columns: tuple[int, ...]
    descending: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A published table as Postgres describes it; `listed` and `filters` have one entry per publication."""

    oid: int
    schema: str
    name: str
    kind: str
    identity: Identity
    listed: tuple[frozenset[str], ...]
    filters: tuple[str | None, ...]
    columns: tuple[PublishedColumn, ...]
    indexes: tuple[PublishedIndex, ...]
    partitions: tuple[int, ...] = ()

    @property
    def full_name(self) -> str:
        return replica_name(self.schema, self.name)

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class PublishedSchema:
    """Published tables, types, and whether the stream has generated columns."""

    tables: tuple[PublishedTable, ...]
    types: Types
    generated: bool


@dataclass(frozen=True, slots=True)
class SelectedTables:
    """The synced tables, their types, and notes for the user: (table or column, sentence)."""

    catalog: Catalog
    types: Types
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def warnings(self) -> dict[str, str]:
        """The notes as sentences, by table or column."""
        sentences: dict[str, str] = {}
        for where, what in self.notes:
            sentences[where] = f"{sentences[where]}; {what}" if where in sentences else f"{where}: {what}"
        return sentences


@dataclass(frozen=True, slots=True)
class _Key:
    columns: tuple[str, ...] = ()
    index: int = 0
    warning: str | None = None


class _Skip(Exception):
    """Why a table is not synced."""


def select_tables(stored: PublishedSchema, selection: TableSelection) -> SelectedTables:
    """The tables that can be synced, with notes about the others."""
    tables: list[TableDef] = []
    notes: list[tuple[str, str]] = []
    taken: set[str] = set()
    for table in stored.tables:
        name = table.full_name
        if table.schema == STATE_SCHEMA or not selection.wants(name):
            continue
        try:
            tables.append(_table(table, stored, taken, notes))
            taken.add(name.lower())
        except _Skip as reason:
            notes.append((f"table {name}", f"it is not synced: {reason}"))
    return SelectedTables(Catalog(_with_free_index_names(tables, taken)), stored.types, tuple(notes))


def refuse_unknown(selection: TableSelection, selected: SelectedTables) -> None:
    """Raise `ConfigurationError` if the settings name a table that is not synced."""
    synced = {table.full_name for table in selected.catalog.tables}
    notes = dict(selected.notes)
    for name in selection.include:
        if name in synced or any(mark in name for mark in "*?["):
            continue
        reason = notes.get(f"table {name}", "it is not published, or there is none")
        raise ConfigurationError(
            "table-not-usable",
            f"table {name}, asked for by the setting `tables`, cannot be synced: {reason}",
            where=f"table {name}",
            fix="correct the setting `tables`, add the table to the publication, or do what the reason says",
        )


def _table(table: PublishedTable, stored: PublishedSchema, taken: set[str], notes: list[tuple[str, str]]) -> TableDef:
    _check_name(table, taken)
    if len(set(table.listed)) > 1:
        raise _Skip("its publications list different columns: give them the same column list")
    columns, unsynced = _columns(table, stored)
    if not columns:
        raise _Skip("none of its columns can be synced: add one of a type that clients can hold")
    notes += [(f"column {table.full_name}.{name}", f"it is not synced: {why}") for name, why in unsynced.items()]
    by_number = {column.number: column for column in columns}
    key = _key(table, by_number)
    if key.warning:
        notes.append((f"table {table.full_name}", key.warning))
    indexes = (_index(i, by_number, stored.types) for i in table.indexes if i.oid != key.index and i.plain)
    return TableDef(
        table.oid,
        table.schema,
        table.name,
        tuple(columns),
        key.columns,
        identity=table.identity,
        indexes=tuple(index for index in indexes if index is not None),
        unsynced=tuple(unsynced),
        row_filter=_filter(table.filters),
        partitions=table.partitions,
    )


def _check_name(table: PublishedTable, taken: set[str]) -> None:
    for part in (table.schema, table.name):
        if not _TABLE_NAME.fullmatch(part):
            raise _Skip(
                f"consumers do not take a space or a dot in the name {part!r}: rename it with letters, digits and _"
            )
    if table.full_name.lower().startswith(RESERVED_TABLES):
        raise _Skip("its name is reserved by the consumer: rename it")
    if table.full_name.lower() in taken:
        raise _Skip("another table has the same name in other case: rename one of them")


def _columns(table: PublishedTable, stored: PublishedSchema) -> tuple[list[ColumnDef], dict[str, str]]:
    columns: list[ColumnDef] = []
    unsynced: dict[str, str] = {}
    seen: set[str] = set()
    for column in table.columns:
        if column.name not in table.listed[0]:
            continue
        declared = _column(column, stored, seen)
        if isinstance(declared, Unsynced):
            unsynced[column.name] = declared.reason
            continue
        seen.add(column.name.lower())
        columns.append(_definition(column, declared))
    return columns, unsynced


def _definition(stored: PublishedColumn, column: Column) -> ColumnDef:
    return ColumnDef(
        stored.number,
        stored.name,
        stored.type_oid,
        stored.modifier,
        column.data_type,
        not_null=stored.not_null,
        default=stored.default,
        enum=column.enum,
        max_length=column.max_length,
    )


def _column(column: PublishedColumn, stored: PublishedSchema, seen: set[str]) -> Column | Unsynced:
    if column.generated and (not stored.generated or column.generated != "s"):
        return Unsynced("it is generated, and this server's stream leaves generated columns out")
    if column.name.lower() == VERSION_COLUMN:
        return Unsynced("its name is reserved by the consumer: rename it")
    if column.name.lower() in seen:
        return Unsynced("another column has the same name in other case: rename one of them")
    return column_for(column.name, column.type_oid, column.modifier, stored.types, not_null=column.not_null)


def _filter(filters: Iterable[str | None]) -> str | None:
    """The condition of several publications: a row is published if any of them publishes it."""
    conditions: list[str] = []
    for condition in filters:
        if condition is None:
            return None
        conditions.append(f"({condition})")
    return " OR ".join(conditions)


def _key(table: PublishedTable, columns: Mapping[int, ColumnDef]) -> _Key:
    usable = [i for i in table.indexes if _can_be_key(i, columns)]
    primary = next((i for i in table.indexes if i.primary), None)
    best = primary if primary in usable else min(usable, key=lambda i: (len(i.columns), i.name), default=None)
    match table.identity:
        case "f":
            return _full_key(table, best, columns)
        case "i":
            index = next((i for i in table.indexes if i.is_identity), None)
            return _identity_key(table, index, usable, columns, "its replica identity index")
        case "d" if primary is not None:
            return _identity_key(table, primary, usable, columns, "its primary key")
    return _growing_key(table, best, columns)


def _can_be_key(index: PublishedIndex, columns: Mapping[int, ColumnDef]) -> bool:
    if not (index.unique and index.immediate and index.plain):
        return False
    members = [columns.get(number) for number in index.columns]
    return all(c is not None and c.not_null and c.declared().zql_type in _KEY_TYPES for c in members)


def _names(index: PublishedIndex, columns: Mapping[int, ColumnDef]) -> tuple[str, ...]:
    return tuple(columns[number].name for number in index.columns)


def _full_key(table: PublishedTable, best: PublishedIndex | None, columns: Mapping[int, ColumnDef]) -> _Key:
    if best is None:
        raise _Skip(f"no key distinguishes its rows: ALTER TABLE {table.sql} ADD PRIMARY KEY (…)")
    return _Key(_names(best, columns), best.oid)


def _identity_key(
    table: PublishedTable,
    index: PublishedIndex | None,
    usable: list[PublishedIndex],
    columns: Mapping[int, ColumnDef],
    what: str,
) -> _Key:
    if index is None or index not in usable:
        raise _Skip(
            f"{what} is missing or has a column that is not synced, or is deferrable: "
            f"ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX one that clients can hold"
        )
    return _Key(_names(index, columns), index.oid)


def _growing_key(table: PublishedTable, best: PublishedIndex | None, columns: Mapping[int, ColumnDef]) -> _Key:
    """A table without replica identity. Postgres refuses to update or delete its rows, so there are only inserts."""
    if best is not None:
        fix = f"ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX {quoted(best.name)}"
        warning = f"it has no replica identity, so Postgres refuses to update or delete its rows: {fix}"
        return _Key(_names(best, columns), best.oid, warning)
    fix = f"ALTER TABLE {table.sql} ADD PRIMARY KEY (…)"
    return _Key(warning=f"it has no key, so its rows can only be added and clients cannot query it: {fix}")


def _index(index: PublishedIndex, columns: Mapping[int, ColumnDef], types: Types) -> IndexDef | None:
    """The index for consumers; None if it has an unsynced column. Not unique if values are rounded in changes."""
    members = [columns.get(number) for number in index.columns]
    if not members or any(column is None for column in members):
        return None
    used = [column for column in members if column is not None]
    unique = index.unique and index.immediate and not any(is_rounded(c.type_oid, types) for c in used)
    directions: list[tuple[str, Direction]] = [
        (column.name, "DESC" if descending else "ASC")
        for column, descending in zip(used, index.descending, strict=True)
    ]
    return IndexDef(index.oid, index.name, tuple(directions), unique)


def _with_free_index_names(tables: list[TableDef], taken: set[str]) -> tuple[TableDef, ...]:
    """Without indexes whose names differ from another only in case: SQLite would treat them as the same."""
    result = []
    for table in tables:
        kept = []
        for index in table.indexes:
            name = replica_name(table.schema, index.name).lower()
            if name not in taken:
                taken.add(name)
                kept.append(index)
        result.append(replace(table, indexes=tuple(kept)))
    return tuple(result)
