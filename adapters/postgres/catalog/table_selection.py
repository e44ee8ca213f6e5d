"""Which published tables and columns can be synced, with which key, and what to tell the user about the others. Pure.

A row is found again in the replica by a key whose columns the stream gives for every update and delete: that is the
replica identity. A table whose updates cannot be expressed is skipped; one that Postgres lets only grow (no identity)
is synced as such. Names must suit the consumer, and differ in more than case, since replicas are SQLite files.
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
class Selection:
    """Which of the published tables the user wants, by name or glob (none: all); `always` are wanted in any case."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    always: tuple[str, ...] = ()

    def wants(self, table: str) -> bool:
        """Whether a table of this full name is to be synced."""
        if table in self.always:
            return True
        chosen = not self.include or any(fnmatchcase(table, pattern) for pattern in self.include)
        return chosen and not any(fnmatchcase(table, pattern) for pattern in self.exclude)


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as Postgres describes it."""

    number: int
    name: str
    type_oid: int
    modifier: int
    not_null: bool
    generated: str
    default: str | None


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An index as Postgres describes it; `plain` ones are valid and hold columns only, for all rows."""

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
class StoredTable:
    """A published table as Postgres describes it; `listed` and `filters` have one entry per publication."""

    oid: int
    schema: str
    name: str
    kind: str
    identity: Identity
    listed: tuple[frozenset[str], ...]
    filters: tuple[str | None, ...]
    columns: tuple[StoredColumn, ...]
    indexes: tuple[StoredIndex, ...]
    partitions: tuple[int, ...] = ()

    @property
    def full_name(self) -> str:
        """Its name in the replica."""
        return replica_name(self.schema, self.name)

    @property
    def sql(self) -> str:
        """Its name as SQL text."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class Stored:
    """All that was read: published tables, types, and whether the stream carries generated columns."""

    tables: tuple[StoredTable, ...]
    types: Types
    generated: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What is synced, the types its values have, and what a user should know: a table or column, and what about it."""

    catalog: Catalog
    types: Types
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def warnings(self) -> dict[str, str]:
        """The notes as sentences, by table or column."""
        found: dict[str, str] = {}
        for where, what in self.notes:
            found[where] = f"{found[where]}; {what}" if where in found else f"{where}: {what}"
        return found


@dataclass(frozen=True, slots=True)
class _Key:
    columns: tuple[str, ...] = ()
    index: int = 0
    warning: str | None = None


class _Skip(Exception):
    """Why a table is not synced."""


def judge(stored: Stored, selection: Selection) -> Found:
    """What is synced, and why the rest is not."""
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
    return Found(Catalog(_with_free_index_names(tables, taken)), stored.types, tuple(notes))


def refuse_unknown(selection: Selection, found: Found) -> None:
    """Raise if the user asks by name for a table that is not synced."""
    synced = {table.full_name for table in found.catalog.tables}
    notes = dict(found.notes)
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


def _table(table: StoredTable, stored: Stored, taken: set[str], notes: list[tuple[str, str]]) -> TableDef:
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


def _check_name(table: StoredTable, taken: set[str]) -> None:
    for part in (table.schema, table.name):
        if not _TABLE_NAME.fullmatch(part):
            raise _Skip(
                f"consumers do not take a space or a dot in the name {part!r}: rename it with letters, digits and _"
            )
    if table.full_name.lower().startswith(RESERVED_TABLES):
        raise _Skip("its name is reserved by the consumer: rename it")
    if table.full_name.lower() in taken:
        raise _Skip("another table has the same name in other case: rename one of them")


def _columns(table: StoredTable, stored: Stored) -> tuple[list[ColumnDef], dict[str, str]]:
    columns: list[ColumnDef] = []
    unsynced: dict[str, str] = {}
    seen: set[str] = set()
    for column in table.columns:
        if column.name not in table.listed[0]:
            continue
        found = _column(column, stored, seen)
        if isinstance(found, Unsynced):
            unsynced[column.name] = found.reason
            continue
        seen.add(column.name.lower())
        columns.append(_definition(column, found))
    return columns, unsynced


def _definition(stored: StoredColumn, column: Column) -> ColumnDef:
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


def _column(column: StoredColumn, stored: Stored, seen: set[str]) -> Column | Unsynced:
    if column.generated and (not stored.generated or column.generated != "s"):
        return Unsynced("it is generated, and this server's stream leaves generated columns out")
    if column.name.lower() == VERSION_COLUMN:
        return Unsynced("its name is reserved by the consumer: rename it")
    if column.name.lower() in seen:
        return Unsynced("another column has the same name in other case: rename one of them")
    return column_for(column.name, column.type_oid, column.modifier, stored.types, not_null=column.not_null)


def _filter(filters: Iterable[str | None]) -> str | None:
    """A row is published if any publication lets it pass."""
    conditions: list[str] = []
    for condition in filters:
        if condition is None:
            return None
        conditions.append(f"({condition})")
    return " OR ".join(conditions)


def _key(table: StoredTable, columns: Mapping[int, ColumnDef]) -> _Key:
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


def _can_be_key(index: StoredIndex, columns: Mapping[int, ColumnDef]) -> bool:
    if not (index.unique and index.immediate and index.plain):
        return False
    found = [columns.get(number) for number in index.columns]
    return all(c is not None and c.not_null and c.declared().zql_type in _KEY_TYPES for c in found)


def _names(index: StoredIndex, columns: Mapping[int, ColumnDef]) -> tuple[str, ...]:
    return tuple(columns[number].name for number in index.columns)


def _full_key(table: StoredTable, best: StoredIndex | None, columns: Mapping[int, ColumnDef]) -> _Key:
    if best is None:
        raise _Skip(f"no key tells its rows apart: ALTER TABLE {table.sql} ADD PRIMARY KEY (…)")
    return _Key(_names(best, columns), best.oid)


def _identity_key(
    table: StoredTable,
    index: StoredIndex | None,
    usable: list[StoredIndex],
    columns: Mapping[int, ColumnDef],
    what: str,
) -> _Key:
    if index is None or index not in usable:
        raise _Skip(
            f"{what} is missing or has a column that is not synced, or is deferrable: "
            f"ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX one that clients can hold"
        )
    return _Key(_names(index, columns), index.oid)


def _growing_key(table: StoredTable, best: StoredIndex | None, columns: Mapping[int, ColumnDef]) -> _Key:
    """Postgres refuses to update or delete rows of such a published table, so only inserts come."""
    if best is not None:
        fix = f"ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX {quoted(best.name)}"
        warning = f"it has no replica identity, so Postgres refuses to update or delete its rows: {fix}"
        return _Key(_names(best, columns), best.oid, warning)
    fix = f"ALTER TABLE {table.sql} ADD PRIMARY KEY (…)"
    return _Key(warning=f"it has no key, so its rows can only be added and clients cannot query it: {fix}")


def _index(index: StoredIndex, columns: Mapping[int, ColumnDef], types: Types) -> IndexDef | None:
    """An index that consumers can have. Where values are rounded on the way, equal ones may be different rows."""
    found = [columns.get(number) for number in index.columns]
    if not found or any(column is None for column in found):
        return None
    used = [column for column in found if column is not None]
    unique = index.unique and index.immediate and not any(is_rounded(c.type_oid, types) for c in used)
    directions: list[tuple[str, Direction]] = [
        (column.name, "DESC" if descending else "ASC")
        for column, descending in zip(used, index.descending, strict=True)
    ]
    return IndexDef(index.oid, index.name, tuple(directions), unique)


def _with_free_index_names(tables: list[TableDef], taken: set[str]) -> tuple[TableDef, ...]:
    """Leave out indexes whose name differs from another's in nothing but case."""
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
