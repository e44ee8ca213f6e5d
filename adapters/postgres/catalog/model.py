"""What is known of the published tables at one point of the stream, with identities that outlive names.

A table is its oid, a column its attribute number: comparing two catalogs by these tells a rename from a drop and a
create, however many changes lie between them. `catalog` reads one from the store; `ddl` turns two into schema changes;
`versions` keeps them as JSON in the store, one per schema version, so that any position can be resumed with the schema
it was read under.

Only what consumers get is in here: tables and columns that cannot be synced were left out when the catalog was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from changesource_sdk import Column, Direction, Index, Table
from protocol.specs import replica_name

STATE_SCHEMA = "changesource_state"
"""The schema of our own tables and functions in the store; never synced, and no likely name of a role, since Postgres
puts a role's tables into the schema of its name."""

Identity = Literal["d", "f", "i", "n"]
"""A table's replica identity, as `pg_class.relreplident` spells it: default, full, index, nothing."""


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One published column. `number` is its attribute number, `default` SQL text, `data_type` what consumers are told.

    `type_oid` and `typmod` are what the stream announces for it: a difference means that the catalog is out of step.
    """

    number: int
    name: str
    type_oid: int
    typmod: int
    data_type: str
    not_null: bool = False
    default: str | None = None
    enum: bool = False
    max_length: int | None = None

    def declared(self) -> Column:
        """The column as the consumer sees it; defaults travel only when a column is added."""
        return Column(self.name, self.data_type, optional=not self.not_null, enum=self.enum, max_length=self.max_length)


@dataclass(frozen=True, slots=True)
class IndexDef:
    """An index consumers get, beside the key's own; `oid` is its identity."""

    oid: int
    name: str
    columns: tuple[tuple[str, Direction], ...]
    unique: bool = False

    def declared(self, table: str) -> Index:
        """The index as the consumer sees it."""
        return Index(self.name, self.columns, unique=self.unique, table=table)


@dataclass(frozen=True, slots=True)
class TableDef:
    """One published table; `key` names the columns that identify a row in old tuples, `()` if there are none.

    `unsynced` names published columns left out; the stream carries them all the same. `row_filter` is the publication's
    condition as SQL; `partitions` are the oids of the leaves whose rows are the table's.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[ColumnDef, ...]
    key: tuple[str, ...]
    identity: Identity = "d"
    indexes: tuple[IndexDef, ...] = ()
    unsynced: tuple[str, ...] = ()
    row_filter: str | None = None
    partitions: tuple[int, ...] = ()

    @property
    def full_name(self) -> str:
        """Its name in the replica and in changes."""
        return replica_name(self.schema, self.name)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Column names in the store's order."""
        return tuple(column.name for column in self.columns)

    def declared(self) -> Table:
        """The table as the consumer sees it."""
        columns = tuple(column.declared() for column in self.columns)
        indexes = tuple(index.declared(self.full_name) for index in self.indexes)
        return Table(self.name, columns, key=self.key, schema=self.schema, indexes=indexes)


@dataclass(frozen=True)
class Catalog:
    """All published tables that are synced, under one schema version."""

    tables: tuple[TableDef, ...] = field(default=())

    @cached_property
    def _by_oid(self) -> Mapping[int, TableDef]:
        return {table.oid: table for table in self.tables}

    def table(self, oid: int) -> TableDef | None:
        """The table of that identity, if it is synced."""
        return self._by_oid.get(oid)

    def to_json(self) -> str:
        """The catalog as stored."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Catalog:
        """The catalog as it was stored."""
        fields: dict[str, Any] = json.loads(text)
        return cls(tuple(_table(table) for table in fields["tables"]))


def _table(fields: dict[str, Any]) -> TableDef:
    return TableDef(
        **{
            **fields,
            "columns": tuple(ColumnDef(**column) for column in fields["columns"]),
            "indexes": tuple(
                IndexDef(**{**index, "columns": tuple((name, way) for name, way in index["columns"])})
                for index in fields["indexes"]
            ),
            **{name: tuple(fields[name]) for name in ("key", "unsynced", "partitions")},
        }
    )
