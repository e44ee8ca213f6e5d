"""The synced tables at one point of the stream, with identities that survive renames.

A table is identified by its oid, a column by its attribute number. Comparing two catalogs by these distinguishes a
rename from a drop and a create, however many changes are between them. `reading` reads a catalog from the database;
`ddl` turns two into schema changes; `versions` stores them as JSON, one per schema version, so that any position can be
resumed with the schema it was read under.

A catalog has only what consumers get: `table_selection` leaves out tables and columns that cannot be synced.
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
"""The schema of our own tables and functions; never synced. Its name is not one that a role is likely to have, since
Postgres creates a role's tables in the schema of the role's name."""

Identity = Literal["d", "f", "i", "n"]
"""A table's replica identity, as `pg_class.relreplident` spells it: default, full, index, nothing."""


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One published column. `number` is its attribute number, `default` SQL text, `data_type` what consumers see.

    `type_oid` and `typmod` must equal what the stream announces; otherwise the catalog is older or newer than the
    stream.
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
        """The column as consumers see it; a default is only sent when a column is added."""
        return Column(self.name, self.data_type, optional=not self.not_null, enum=self.enum, max_length=self.max_length)


@dataclass(frozen=True, slots=True)
class IndexDef:
    """An index, other than the key's own, that consumers get; `oid` is its identity."""

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

    `unsynced` are names of published columns that are not synced, although the stream has them. `row_filter` is the
    publication's condition as SQL; `partitions` are the oids of the leaves that have the table's rows.
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
        """Column names in the order of the database."""
        return tuple(column.name for column in self.columns)

    def declared(self) -> Table:
        """The table as the consumer sees it."""
        columns = tuple(column.declared() for column in self.columns)
        indexes = tuple(index.declared(self.full_name) for index in self.indexes)
        return Table(self.name, columns, key=self.key, schema=self.schema, indexes=indexes)


@dataclass(frozen=True)
class Catalog:
    """The synced tables of one schema version."""

    tables: tuple[TableDef, ...] = field(default=())

    @cached_property
    def _by_oid(self) -> Mapping[int, TableDef]:
        return {table.oid: table for table in self.tables}

    def table(self, oid: int) -> TableDef | None:
        """The table with that oid, if it is synced."""
        return self._by_oid.get(oid)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Catalog:
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
