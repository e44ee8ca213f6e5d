"""The schema that queries see: tables with a key, their synced columns and types.

It is read from the catalog in the replica file, so it belongs to the same snapshot as the rows. Tables without a usable
key and columns of unknown types are in the replica but not in this schema.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.data_types import ZqlType
from protocol.specs import VERSION_COLUMN, ColumnSpec
from reference_cache.replica.catalog import Catalog, StoredTable
from reference_cache.replica.stored_catalog import load_catalog
from reference_cache.zql.schema import ColumnType, Schema, TableSchema


@dataclass(frozen=True, slots=True)
class ReplicaColumn:
    """A synced column."""

    type: ZqlType
    not_null: bool


@dataclass(frozen=True, slots=True)
class ReplicaTable:
    """A synced table. `keys` are all its non-null unique keys, the primary key (the shortest) first."""

    name: str
    columns: Mapping[str, ReplicaColumn]
    keys: tuple[tuple[str, ...], ...]

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The key that identifies rows in the cache."""
        return self.keys[0]

    @property
    def engine_table(self) -> TableSchema:
        """The table for the query engine: the synced columns in order, then the row's version."""
        columns = {name: ColumnType(column.type, not column.not_null) for name, column in self.columns.items()}
        columns[VERSION_COLUMN] = ColumnType("string")
        return TableSchema(self.name, columns, self.primary_key, self.keys[1:])


@dataclass(frozen=True, slots=True)
class ReplicaSchema:
    """The synced tables by name; `unsynced` names each other table with the reason."""

    tables: Mapping[str, ReplicaTable]
    unsynced: Mapping[str, str]

    @property
    def engine_schema(self) -> Schema:
        """The schema for the query engine; the last column of every table is the row's version, `_0_version`."""
        return Schema({name: table.engine_table for name, table in self.tables.items()})


def read_schema(connection: sqlite3.Connection) -> ReplicaSchema:
    """The schema as of the connection's snapshot."""
    return schema_of(load_catalog(connection))


def schema_of(catalog: Catalog) -> ReplicaSchema:
    """The synced part of a catalog."""
    tables = {name: _table(catalog, stored) for name, stored in catalog.tables.items()}
    synced = {name: table for name, table in tables.items() if table is not None}
    reason = "it has no unique index over columns that are not null and of a synced type"
    return ReplicaSchema(synced, dict.fromkeys(tables.keys() - synced.keys(), reason))


def _table(catalog: Catalog, stored: StoredTable) -> ReplicaTable | None:
    keys = [key for key in catalog.keys_of(stored.name) if stored.unfilled.isdisjoint(key)]
    if not keys:
        return None
    shown = {name: spec for name, spec in stored.columns.items() if name not in stored.unfilled}
    columns = {name: column for name, spec in shown.items() if (column := _column(spec)) is not None}
    return ReplicaTable(stored.name, columns, tuple(keys))


def _column(spec: ColumnSpec) -> ReplicaColumn | None:
    kind = spec.zql_type
    return None if kind is None else ReplicaColumn(kind, bool(spec.not_null))
