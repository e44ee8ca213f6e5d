"""What is known of the published tables at one point in time, by identities that outlive names.

Tables carry their oid and columns their attribute number, which Postgres never gives out twice in a table: comparing
two catalogs by these tells a rename from a drop and a create. A catalog is read by `introspect` within one snapshot,
is frozen and picklable, and holds only what is synced; `skipped` and each table's `unsynced` say what is not, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from adapters.postgres.types import Types
from changesource_sdk.schema import Column, Direction, Index, Table
from protocol.specs import replica_name

Identity = Literal["default", "full", "index", "nothing"]


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One synced column: its attribute number, its type as the stream names it, and what consumers are told."""

    number: int
    type_oid: int
    modifier: int
    column: Column
    default: str | None = None

    @property
    def name(self) -> str:
        """Its name now."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class IndexDef:
    """A plain index beside the key's own; `oid` outlives its name."""

    oid: int
    name: str
    columns: tuple[tuple[str, Direction], ...]
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that holds rows of a table: the table itself, or one of its partitions."""

    oid: int
    schema: str
    name: str

    @property
    def sql(self) -> str:
        """The relation as SQL text."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class TableDef:
    """One synced table.

    `key` is empty if its rows can only be added or all be removed. `filter` is the publications' row filter as SQL.
    `unsynced` maps the names of columns that are left out to the reason. `extra` are columns that consumers expect and
    the store does not have: always null. `warning` says what limits the table and how to lift it.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[ColumnDef, ...]
    key: tuple[str, ...]
    indexes: tuple[IndexDef, ...] = ()
    identity: Identity = "default"
    filter: str | None = None
    leaves: tuple[Leaf, ...] = ()
    unsynced: Mapping[str, str] = field(default_factory=dict)
    extra: tuple[Column, ...] = ()
    warning: str | None = None

    @property
    def full_name(self) -> str:
        """Its name in the replica, in changes and for clients."""
        return replica_name(self.schema, self.name)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the synced columns in the store's order."""
        return tuple(column.name for column in self.columns)

    def declared(self) -> Table:
        """The table as consumers see it; defaults travel only when a column is added."""
        columns = (*(c.column for c in self.columns), *self.extra)
        indexes = tuple(Index(i.name, i.columns, unique=i.unique) for i in self.indexes)
        return Table(self.name, columns, key=self.key, schema=self.schema, indexes=indexes)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All synced tables under one schema, the types their values have, and why other published tables are skipped."""

    tables: tuple[TableDef, ...] = ()
    types: Types = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def table(self, oid: int) -> TableDef | None:
        """The table of that oid, if it is synced."""
        return next((table for table in self.tables if table.oid == oid), None)

    def notes(self) -> list[tuple[str, str]]:
        """What a user should know, once: a table or column, and what about it."""
        notes = [(f"table {name}", reason) for name, reason in self.skipped.items()]
        for table in self.tables:
            notes += [(f"table {table.full_name}", table.warning)] if table.warning else []
            notes += [(f"column {table.full_name}.{name}", reason) for name, reason in table.unsynced.items()]
        return notes


def quoted(name: str) -> str:
    """An identifier as SQL text, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'
