"""What is known of the store's tables at one point in time, with identities that outlive names.

Every table and column carries a number that is given once and never again. Comparing two catalogs by these numbers
tells a rename from a drop and a create, however many changes lie between them. Catalogs are frozen and stored as
JSON in the database itself (`capture`), one per schema version, so that any position can be resumed with the schema
it was read under.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from changesource_sdk import Column, Direction, Index, Table


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One column; `default` is SQL text as declared, `data_type` the type consumers are told."""

    id: int
    name: str
    data_type: str
    not_null: bool = False
    default: str | None = None

    def declared(self) -> Column:
        """The column as the consumer sees it; defaults travel only when a column is added."""
        return Column(self.name, self.data_type, optional=not self.not_null)


@dataclass(frozen=True, slots=True)
class IndexDef:
    """A plain index under the name the consumer knows it by, without the key's own."""

    name: str
    columns: tuple[tuple[str, Direction], ...]
    unique: bool = False

    def declared(self, table: str) -> Index:
        """The index as the consumer sees it."""
        return Index(self.name, self.columns, unique=self.unique, table=table)


@dataclass(frozen=True, slots=True)
class UniqueSet:
    """Columns, each with its collation, that a constraint keeps unique beside the key."""

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TableDef:
    """One table. `revision` grows when its rows may have changed behind the triggers' back.

    `locator` is what a scan is split by: the rowid's usable name, or the key columns of a table without rowid.
    """

    id: int
    name: str
    columns: tuple[ColumnDef, ...]
    key: tuple[str, ...]
    locator: tuple[str, ...]
    indexes: tuple[IndexDef, ...] = ()
    unique_sets: tuple[UniqueSet, ...] = ()
    revision: int = 0

    @property
    def column_names(self) -> tuple[str, ...]:
        """Column names in the store's order."""
        return tuple(column.name for column in self.columns)

    @property
    def replaces(self) -> bool:
        """Whether the consumer has unique indexes beside the key: then only whole inserts are safe in any order."""
        return any(index.unique for index in self.indexes)

    def declared(self) -> Table:
        """The table as the consumer sees it."""
        columns = tuple(column.declared() for column in self.columns)
        return Table(self.name, columns, key=self.key, indexes=tuple(i.declared(self.name) for i in self.indexes))


@dataclass(frozen=True, slots=True)
class Catalog:
    """All synced tables under one schema version.

    `origin` names the capture (a database restored or replaced has another); `cookie` is the database's schema
    counter when this was true; `objects` maps all that is in the schema to a checksum of its text; `next_id` was
    never given out.
    """

    origin: str
    cookie: int = -1
    next_id: int = 1
    tables: tuple[TableDef, ...] = ()
    objects: Mapping[str, int] = field(default_factory=dict)
    selection: str = ""

    def table(self, number: int) -> TableDef | None:
        """The table of that identity, if it still exists."""
        return next((table for table in self.tables if table.id == number), None)

    @property
    def key_width(self) -> int:
        """The number of columns of the widest key."""
        return max((len(table.key) for table in self.tables), default=1)

    def to_json(self) -> str:
        """The catalog as stored."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Catalog:
        """The catalog as it was stored."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "tables": tuple(_table(table) for table in fields["tables"])})


def _table(fields: dict[str, Any]) -> TableDef:
    return TableDef(
        **{
            **fields,
            "columns": tuple(ColumnDef(**column) for column in fields["columns"]),
            "key": tuple(fields["key"]),
            "locator": tuple(fields["locator"]),
            "indexes": tuple(IndexDef(**{**i, "columns": _pairs(i["columns"])}) for i in fields["indexes"]),
            "unique_sets": tuple(UniqueSet(_pairs(u["columns"])) for u in fields["unique_sets"]),
        }
    )


def _pairs(pairs: list[list[str]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in pairs)
