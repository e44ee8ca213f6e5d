"""Reads which tables the database has and which of them can be synced.

A table can be synced if it is an ordinary table with a key: its primary key, or a unique index over columns that are
never null, all of types that clients can hold. Each table that is skipped gets one reason, which ends with what to do.
The tables have no identities yet; `identity` assigns them.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from adapters.sqlite.catalog.model import ColumnDef, IndexDef, TableDef, UniqueSet
from adapters.sqlite.settings import Selection
from adapters.sqlite.types import UNSYNCED, data_type
from changesource_sdk import ConfigurationError, Direction
from changesource_sdk.toolkit import canonical_name, split_name
from protocol.specs import RESERVED_TABLES

OWN = "_changesource_"
RESERVED = (*RESERVED_TABLES, OWN)
BUILT_IN_COLLATIONS = ("BINARY", "NOCASE", "RTRIM")
ROWID_NAMES = ("_rowid_", "rowid", "oid")


@dataclass(frozen=True, slots=True)
class SyncableTables:
    """The tables that can be synced (without identities yet), and why the others are skipped."""

    tables: tuple[TableDef, ...]
    skipped: dict[str, str]
    unsynced_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _StoredIndex:
    name: str
    unique: bool
    origin: str
    partial: bool
    columns: tuple[tuple[str | None, Direction, str], ...]

    @property
    def plain(self) -> tuple[str, ...] | None:
        """Its column names; None if it covers only some rows or has expressions."""
        names = tuple(name for name, _, _ in self.columns if name is not None)
        return names if len(names) == len(self.columns) and not self.partial else None


def quoted(name: str) -> str:
    """An identifier as SQL text."""
    return '"' + name.replace('"', '""') + '"'


def find_tables(db: sqlite3.Connection, selection: Selection) -> SyncableTables:
    """The selected tables in the order of their names. Raises `ConfigurationError` for one that cannot be synced."""
    listed = db.execute("SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' ORDER BY name").fetchall()
    tables, skipped, unsynced = [], {}, []
    taken = {name for name, _, _ in listed}
    for name, kind, without_rowid in listed:
        if name.startswith(RESERVED) or not selection.wants(name) or kind in ("view", "shadow"):
            continue
        problem = _unsuitable(name, kind, taken)
        table = None if problem else _read_table(db, name, bool(without_rowid), selection)
        if table is None:
            skipped[name] = (
                problem or "it has no primary key or unique index over NOT NULL columns of synced types: add one"
            )
            continue
        tables.append(table)
        unsynced += [f"{name}.{column.name}" for column in table.columns if column.data_type == UNSYNCED]
    _refuse_unknown(selection, {table.name for table in tables}, skipped)
    return SyncableTables(tuple(tables), skipped, tuple(unsynced))


def schema_objects(db: sqlite3.Connection) -> dict[str, int]:
    """A checksum of the SQL text of everything in the schema except the capture's own, by kind and name."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {f"{kind} {name}": zlib.crc32(sql.encode()) for kind, name, sql in rows if not name.startswith(OWN)}


def _unsuitable(name: str, kind: str, taken: set[str]) -> str | None:
    if kind != "table":
        return f"it is a {kind} table, and only ordinary ones record their changes: copy what clients need to one"
    if not all(split_name(name)) or (canonical_name(name) != name and canonical_name(name) in taken):
        return "its name cannot be split into schema.table: rename it"
    return None


def _refuse_unknown(selection: Selection, usable: set[str], skipped: dict[str, str]) -> None:
    for name in selection.include:
        if any(mark in name for mark in "*?[") or name in usable:
            continue
        reason = f"cannot be synced: {skipped[name]}" if name in skipped else "is no table of this database"
        raise ConfigurationError(
            "table-not-usable",
            f"table {name}, asked for by the setting `tables`, {reason}",
            where=f"table {name}",
            fix="correct the setting `tables`, or the table",
        )


def _read_table(db: sqlite3.Connection, name: str, without_rowid: bool, selection: Selection) -> TableDef | None:
    listed = db.execute('SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?)', (name,)).fetchall()
    indexes = _read_indexes(db, name)
    types = {column: data_type(declared, selection.dates) for column, declared, *_ in listed}
    never_null = {column for column, _, not_null, _, pk in listed if not_null or pk}
    primary = tuple(column for column, *_, pk in sorted(listed, key=lambda row: row[4]) if pk)
    key = _choose_key(primary, indexes, types, never_null)
    if key is None:
        return None
    columns = tuple(ColumnDef(0, c, types[c], bool(nn) or c in key, default) for c, _, nn, default, _ in listed)
    rowid = next((alias for alias in ROWID_NAMES if alias not in {c.name.lower() for c in columns}), None)
    locator = key if without_rowid or rowid is None else (rowid,)
    unique_sets = _unique_sets(key, indexes, ("u", "pk", "c") if selection.exact_replace else ("u", "pk"))
    return TableDef(0, name, columns, key, locator, _plain_indexes(name, key, indexes), unique_sets)


def _read_indexes(db: sqlite3.Connection, table: str) -> list[_StoredIndex]:
    indexes = []
    for name, unique, origin, partial in db.execute(
        'SELECT name, "unique", origin, partial FROM pragma_index_list(?) ORDER BY name', (table,)
    ).fetchall():
        parts = db.execute('SELECT name, "desc", coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno', (name,))
        columns: list[tuple[str | None, Direction, str]] = []
        for column, descending, collation in parts:
            columns.append((column, "DESC" if descending else "ASC", collation))
        indexes.append(_StoredIndex(name, bool(unique), origin, bool(partial), tuple(columns)))
    return indexes


def _choose_key(
    primary: tuple[str, ...], indexes: Sequence[_StoredIndex], types: dict[str, str], never_null: set[str]
) -> tuple[str, ...] | None:
    """The primary key, else the narrowest unique index, if clients can hold every column of it."""
    foreign = any(i.origin == "pk" and not _built_in(i) for i in indexes)
    uniques = sorted((i for i in indexes if i.unique and i.origin != "pk"), key=lambda i: (len(i.columns), i.name))
    candidates = [None if foreign else primary, *(i.plain for i in uniques if _built_in(i))]
    for key in candidates:
        if key and all(types[column] != UNSYNCED and column in never_null for column in key):
            return key
    return None


def _built_in(index: _StoredIndex) -> bool:
    return all(collation in BUILT_IN_COLLATIONS for _, _, collation in index.columns)


def _plain_indexes(table: str, key: tuple[str, ...], indexes: Sequence[_StoredIndex]) -> tuple[IndexDef, ...]:
    """The indexes a consumer can build: no expressions, no conditions, not the key again."""
    plain = []
    for index in indexes:
        names = index.plain
        if names is None or (index.unique and names == key) or len(set(names)) < len(names):
            continue
        directions = tuple((name, direction) for name, direction, _ in index.columns if name is not None)
        plain.append(IndexDef(_index_name(table, index.name, names), directions, index.unique))
    return tuple(plain)


def _index_name(table: str, name: str, columns: tuple[str, ...]) -> str:
    """A name that differs from SQLite's own names and from the consumer's key index of any table."""
    if name.startswith("sqlite_autoindex_"):
        return f"{split_name(table)[1]}_{'_'.join(columns)}_key"
    return f"{name}_index" if name.endswith("_pkey") else name


def _unique_sets(
    key: tuple[str, ...], indexes: Sequence[_StoredIndex], origins: Collection[str]
) -> tuple[UniqueSet, ...]:
    """The unique sets by which `REPLACE` can remove a row with another key.

    Those are other unique constraints, and a key with a collation that treats several spellings as equal. Triggers may
    name these columns, since SQLite refuses to drop a column of a constraint. It does drop a column of
    `CREATE UNIQUE INDEX` after its index, and would then fail in our trigger: see `Selection.exact_replace`.
    """
    sets = []
    for index in indexes:
        names, collations = index.plain, {collation for _, _, collation in index.columns}
        other = index.origin in origins and names != key
        if index.unique and names and _built_in(index) and (other or (names == key and collations != {"BINARY"})):
            sets.append(UniqueSet(tuple((name, collation) for name, _, collation in index.columns if name is not None)))
    return tuple(sets)
