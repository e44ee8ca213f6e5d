"""What a query may speak about: tables, typed columns, keys, and named relationships.

A `Schema` is declared in Python, read from the client-schema format (`Schema.from_json`), and consulted by everything
that compiles or checks a query. Engine rows are plain tuples in a table's column order; `TableSchema.index` gives each
column's index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

Row: TypeAlias = tuple[Any, ...]
ValueType: TypeAlias = Literal["string", "number", "boolean", "json"]
Cardinality: TypeAlias = Literal["one", "many"]


class SchemaError(ValueError):
    """A declared schema that contradicts itself."""

    code = "bad-schema"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's value type; `optional` columns may hold null."""

    type: ValueType
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table: ordered columns, a primary key, and the further keys known to be unique.

    `columns` is never reordered after construction, so rows of this table are tuples in that order for good.
    """

    name: str
    columns: Mapping[str, ColumnType]
    primary_key: tuple[str, ...]
    unique_keys: tuple[tuple[str, ...], ...] = ()
    server_name: str | None = None
    server_columns: Mapping[str, str] = field(default_factory=dict)
    index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", {name: i for i, name in enumerate(self.columns)})
        if not self.primary_key:
            raise SchemaError(f"table {self.name!r} has no primary key; name at least one column")
        for key in (self.primary_key, *self.unique_keys):
            missing = [column for column in key if column not in self.columns]
            if missing:
                raise SchemaError(f"key {list(key)} of table {self.name!r} names unknown columns {missing}")

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The primary key, then the other unique keys."""
        return (self.primary_key, *(key for key in self.unique_keys if key != self.primary_key))

    def row(self, values: Mapping[str, Any]) -> Row:
        """The tuple for a row given by column name; absent columns become null."""
        return tuple(values.get(column) for column in self.columns)

    def named(self, row: Row) -> dict[str, Any]:
        """The row by column name."""
        return dict(zip(self.columns, row, strict=True))

    def positions(self, columns: Iterable[str]) -> tuple[int, ...]:
        """The indexes of these columns in a row tuple."""
        return tuple(self.index[column] for column in columns)


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a relationship: rows of `table` whose `dest_field` equals the source's `source_field`."""

    source_field: tuple[str, ...]
    dest_field: tuple[str, ...]
    table: str
    cardinality: Cardinality = "many"


Relationship: TypeAlias = tuple[Hop, ...]
"""One hop, or two through a junction table."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables by name, and per table its relationships by name; every hop points at known tables and columns."""

    tables: Mapping[str, TableSchema]
    relationships: Mapping[str, Mapping[str, Relationship]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for source, named in self.relationships.items():
            for name, hops in named.items():
                self._check_relationship(source, name, hops)

    def _check_relationship(self, source: str, name: str, hops: Relationship) -> None:
        where = f"relationship {source}.{name}"
        if len(hops) not in (1, 2):
            raise SchemaError(f"{where} has {len(hops)} hops; one, or two through a junction, are possible")
        table = source
        for hop in hops:
            if len(hop.source_field) != len(hop.dest_field) or not hop.source_field:
                raise SchemaError(f"{where} pairs {list(hop.source_field)} with {list(hop.dest_field)}")
            self._check_columns(where, table, hop.source_field)
            self._check_columns(where, hop.table, hop.dest_field)
            table = hop.table

    def _check_columns(self, where: str, table: str, columns: tuple[str, ...]) -> None:
        if table not in self.tables:
            raise SchemaError(f"{where} refers to the unknown table {table!r}")
        missing = [column for column in columns if column not in self.tables[table].columns]
        if missing:
            raise SchemaError(f"{where} refers to unknown columns {missing} of table {table!r}")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schema:
        """Read `{tables, relationships}` as clients and the golden datasets write them."""
        tables = {name: _table_from_json(name, table) for name, table in value["tables"].items()}
        relationships = {
            table: {name: tuple(_hop_from_json(hop) for hop in hops) for name, hops in named.items()}
            for table, named in value.get("relationships", {}).items()
        }
        return cls(tables, relationships)


def table(
    name: str,
    columns: Mapping[str, ColumnType | str],
    primary_key: Sequence[str] | str = "id",
    unique: Iterable[Sequence[str]] = (),
) -> TableSchema:
    """Declare a table; a column type is `"string"`, or `"string?"` when it may be null."""
    return TableSchema(
        name,
        {column: _column(kind) for column, kind in columns.items()},
        _names(primary_key),
        tuple(_names(key) for key in unique),
    )


def hop(
    source_field: Sequence[str] | str, table: str, dest_field: Sequence[str] | str, cardinality: Cardinality = "many"
) -> Hop:
    """Declare one step of a relationship."""
    return Hop(_names(source_field), _names(dest_field), table, cardinality)


def schema(tables: Iterable[TableSchema], relationships: Mapping[str, Mapping[str, Hop | Relationship]]) -> Schema:
    """Declare a schema; a relationship is one hop or a pair of them."""
    hops = {
        source: {name: (hops,) if isinstance(hops, Hop) else hops for name, hops in named.items()}
        for source, named in relationships.items()
    }
    return Schema({each.name: each for each in tables}, hops)


def _names(value: Sequence[str] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _column(kind: ColumnType | str) -> ColumnType:
    if isinstance(kind, ColumnType):
        return kind
    name = kind.removesuffix("?")
    if name not in get_args(ValueType):
        raise SchemaError(f"{kind!r} is no column type; use {', '.join(get_args(ValueType))}, with ? for nullable")
    return ColumnType(name, optional=kind.endswith("?"))  # type: ignore[arg-type]


def _table_from_json(name: str, value: Mapping[str, Any]) -> TableSchema:
    columns = value["columns"]
    return TableSchema(
        name,
        {column: ColumnType(spec["type"], bool(spec.get("optional", False))) for column, spec in columns.items()},
        tuple(value["primaryKey"]),
        tuple(tuple(key) for key in value.get("uniqueKeys", ())),
        value.get("serverName"),
        {column: spec["serverName"] for column, spec in columns.items() if "serverName" in spec},
    )


def _hop_from_json(value: Mapping[str, Any]) -> Hop:
    return Hop(
        tuple(value["sourceField"]), tuple(value["destField"]), value["destSchema"], value.get("cardinality", "many")
    )
