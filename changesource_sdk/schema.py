"""Declares tables, columns and indexes of an upstream.

A `Table` has columns, a key and further indexes; column types are Postgres type names or plain Python types. Names
are given once: `Table("issue", …)` lives in schema `public`, `Table("zero_0.clients", …)` in schema `zero_0`.
Everywhere else a table is named by its `full_name`, which is also the name clients use. Declarations are frozen,
picklable and complete: `spec()` gives what travels. Whether a declaration suits a consumer is decided by
`pipeline.encoding.consumer_schema`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Literal
from uuid import UUID

from changesource_sdk.errors import InvalidSchema
from protocol.data_types import ValueKind, ZqlType
from protocol.specs import ColumnSpec, IndexSpec, TableSpec, replica_name

PUBLIC = "public"

PYTHON_TYPES: Mapping[type, str] = {
    bool: "bool",
    int: "int8",
    float: "float8",
    str: "text",
    bytes: "bytea",
    datetime: "timestamptz",
    date: "date",
    time: "time",
    Decimal: "numeric",
    UUID: "uuid",
    dict: "json",
    list: "json",
}
"""The data type for each Python type in a `Column`."""

Default = bool | int | float | str | None
Direction = Literal["ASC", "DESC"]


class JsonText(str):
    """A JSON document already serialised, for a JSON column; a plain `str` there is a JSON string."""

    __slots__ = ()


def split_name(full_name: str) -> tuple[str, str]:
    """The schema and the name in it of `name` or `schema.name`."""
    schema, dot, name = full_name.partition(".")
    return (schema, name) if dot else (PUBLIC, full_name)


def canonical_name(full_name: str) -> str:
    """The name of a table or index in the replica: without the schema if that is `public`."""
    return replica_name(*split_name(full_name))


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `default` is a value that existing rows get when the column is added; `default_sql` the same as
    SQL.
    """

    name: str
    type: str | type
    optional: bool = True
    default: Default = None
    default_sql: str | None = None
    enum: bool = False
    max_length: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.type, type):
            if self.type not in PYTHON_TYPES:
                raise InvalidSchema(
                    "unknown-type",
                    f"the Python type {self.type.__name__} stands for no column type",
                    where=f"column {self.name}",
                    fix=f"use one of {', '.join(t.__name__ for t in PYTHON_TYPES)} or a data type name such as 'text'",
                )
            object.__setattr__(self, "type", PYTHON_TYPES[self.type])

    @property
    def data_type(self) -> str:
        """The data type's name."""
        return str(self.type)

    @property
    def is_array(self) -> bool:
        """Whether values are lists of the type before the brackets."""
        return self.data_type.endswith("[]")

    def spec(self, position: int = 1) -> ColumnSpec:
        """The column in the protocol; `position` is its order among the table's columns."""
        fields: dict[str, object] = {"pos": position, "dataType": self.data_type, "notNull": not self.optional}
        default = self.default_sql if self.default_sql is not None else literal(self.default)
        if default is not None:
            fields["dflt"] = default
        if self.max_length is not None:
            fields["characterMaximumLength"] = self.max_length
        kind = "e" if self.enum else "b"
        if self.is_array:
            fields["elemPgTypeClass"] = kind
        elif self.enum:
            fields["pgTypeClass"] = kind
        return ColumnSpec.model_validate(fields)

    @property
    def kind(self) -> ValueKind:
        """How its values are encoded in the protocol."""
        return self.spec().value_kind

    @property
    def zql_type(self) -> ZqlType | None:
        """The type clients see; None if the column is replicated but not synced."""
        return self.spec().zql_type


@dataclass(frozen=True, slots=True)
class Index:
    """An index: columns in order, each a name or a `(name, "DESC")` pair. Inside a `Table`, `table` is filled in."""

    name: str
    columns: Sequence[str | tuple[str, Direction]]
    unique: bool = False
    table: str = ""

    def __post_init__(self) -> None:
        columns = (c if isinstance(c, str) or c[1] == "DESC" else c[0] for c in self.columns)
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "table", canonical_name(self.table))

    @property
    def directions(self) -> dict[str, Direction]:
        """Column names in order, with their direction."""
        return dict((column, "ASC") if isinstance(column, str) else column for column in self.columns)

    @property
    def full_name(self) -> str:
        """Its name in the replica; an index lives in its table's schema."""
        return replica_name(split_name(self.table)[0], self.name)

    def spec(self) -> IndexSpec:
        """The index in the protocol."""
        schema, table = split_name(self.table)
        fields = {"schema": schema, "tableName": table, "name": self.name, "unique": self.unique}
        return IndexSpec.model_validate({**fields, "columns": self.directions})


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Key columns are never null; `key=()` declares a table whose rows can only be added or all be removed."""

    name: str
    columns: Sequence[Column]
    key: Sequence[str] = ("id",)
    schema: str = PUBLIC
    indexes: Sequence[Index] = field(default=())

    def __post_init__(self) -> None:
        schema, name = split_name(self.name)
        if schema != PUBLIC:
            object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "name", name)
        key = (self.key,) if isinstance(self.key, str) else tuple(self.key)
        object.__setattr__(self, "key", key)
        columns = tuple(replace(c, optional=False) if c.name in key and c.optional else c for c in self.columns)
        object.__setattr__(self, "columns", columns)
        indexes = tuple(replace(index, table=self.full_name) for index in self.indexes)
        object.__setattr__(self, "indexes", indexes)

    @property
    def full_name(self) -> str:
        """Its name in the replica, in changes and for clients."""
        return replica_name(self.schema, self.name)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Column names in declared order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        """The column of that name, if any."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def key_index(self) -> Index | None:
        """The unique index that makes `key` a key for the consumer; None for a table without key."""
        if not self.key:
            return None
        return Index(f"{self.name}_pkey", tuple(self.key), unique=True, table=self.full_name)

    def spec(self) -> TableSpec:
        """The table in the protocol; its key index is a separate message."""
        columns = {column.name: column.spec(number) for number, column in enumerate(self.columns, start=1)}
        fields = {"schema": self.schema, "name": self.name, "columns": columns}
        return TableSpec.model_validate({**fields, "primaryKey": tuple(self.key)} if self.key else fields)


def literal(value: Default) -> str | None:
    """A default value in the only spellings the consumer understands; None for no default."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return format(Decimal(repr(value)), "f")
        case str():
            return "'" + value.replace("'", "''") + "'::text"
