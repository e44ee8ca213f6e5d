"""The synced tables at one schema version, with identities that survive renames.

Every table and column has a number that is never used again. Comparing two catalogs by these numbers distinguishes a
rename from a drop and a create, however many changes are between them. Catalogs are stored as JSON in the database
(`capture`), one per schema version, so that any position can be resumed with the schema it was read under.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from changesource_sdk import Column, Direction, Index, Table


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One column; `default` is SQL text as declared, `data_type` the type that consumers see."""

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
    """An index of plain columns, other than the key's own; `name` is its name at the consumer."""

    name: str
    columns: tuple[tuple[str, Direction], ...]
    unique: bool = False

    def declared(self, table: str) -> Index:
        """The index as the consumer sees it."""
        return Index(self.name, self.columns, unique=self.unique, table=table)


@dataclass(frozen=True, slots=True)
class UniqueSet:
    """Columns, each with its collation, that a constraint other than the key keeps unique."""

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TableDef:
    """One table. `revision` increases when its rows may have changed without the triggers recording it.

    Snapshots are split by `locator`: a name of the rowid that no column hides, or the key of a table without rowid.
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
        """Column names in the order of the database."""
        return tuple(column.name for column in self.columns)

    @property
    def replaces(self) -> bool:
        """Whether the consumer has unique indexes other than the key.

        Rows are then sent as inserts, which replace: the changes of a batch come in no particular order, and an update
        could meet a unique value that a later change of the batch moves away.
        """
        return any(index.unique for index in self.indexes)

    def declared(self) -> Table:
        """The table as the consumer sees it."""
        columns = tuple(column.declared() for column in self.columns)
        return Table(self.name, columns, key=self.key, indexes=tuple(i.declared(self.name) for i in self.indexes))


@dataclass(frozen=True, slots=True)
class Catalog:
    """All synced tables under one schema version.

    `origin` is the random name of the capture: a file that replaces the database has another. `cookie` is SQLite's
    schema counter for which this catalog holds. `objects` maps everything in the schema to a checksum of its SQL text.
    `next_id` is the first number that is not used yet.
    """

    origin: str
    cookie: int = -1
    next_id: int = 1
    tables: tuple[TableDef, ...] = ()
    objects: Mapping[str, int] = field(default_factory=dict)
    selection: str = ""

    def table(self, number: int) -> TableDef | None:
        """The table with that identity, if it still exists."""
        return next((table for table in self.tables if table.id == number), None)

    @property
    def key_width(self) -> int:
        """The number of columns of the widest key."""
        return max((len(table.key) for table in self.tables), default=1)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Catalog:
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
