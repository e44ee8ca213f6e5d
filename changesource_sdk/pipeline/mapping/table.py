"""Applies mappings to tables: the table that consumers get, and the upstream's column for each of its columns.

The mapping is checked against the upstream's table: an unknown column, a key column that is left out and two columns
with the same name raise a `ConfigurationError` that names the mapping's key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from changesource_sdk.pipeline.mapping.declare import MappedColumn, Mappings, Mask, Sql, TableMapping, wrong
from changesource_sdk.schema import Column, Index, Table, canonical_name
from service_kit.suggestions import nearest


@dataclass(frozen=True, slots=True)
class MappedTable:
    """The upstream's table (`source`), its mapping, and the table that consumers get (`target`).

    `kept` has the consumers' name of every column of `source` that they get.
    """

    source: Table
    mapping: TableMapping
    target: Table
    kept: dict[str, str]

    @property
    def key(self) -> str:
        """The mapping's key in the configuration, for error messages."""
        return f"mapping.{self.source.full_name}"


def map_tables(tables: Sequence[Table], mappings: Mappings, *, may_lack: bool = False) -> dict[str, MappedTable]:
    """Map every table; the result is by the upstream's name. Tables without mapping stay as they are.

    Raises `ConfigurationError` for a mapping that does not fit, or, unless `may_lack`, of a table that does not exist.
    """
    named = {canonical_name(name): mapping for name, mapping in mappings.items()}
    sources = {table.full_name: table for table in tables}
    for name in named:
        if name not in sources and not may_lack:
            raise wrong(f"mapping.{name}", f"the upstream has no table {name!r}", nearest(name, list(sources)))
    mapped = {name: map_table(table, named.get(name, TableMapping())) for name, table in sources.items()}
    taken: dict[str, str] = {}
    for name, table in mapped.items():
        target = table.target.full_name
        if other := taken.get(target.lower()):
            raise wrong(
                f"{table.key}.name", f"{other} and {name} would both be called {target!r}", "choose another name"
            )
        taken[target.lower()] = name
    return mapped


def map_table(source: Table, mapping: TableMapping) -> MappedTable:
    """Map one table; raises `ConfigurationError` if the mapping does not fit it."""
    key = f"mapping.{source.full_name}"
    kept = _kept(source, mapping, key)
    columns = [
        _column(column, kept[column.name], mapping.columns.get(kept[column.name]))
        for column in source.columns
        if column.name in kept
    ]
    present = set(kept.values())
    columns += [
        _new_column(name, column, f"{key}.columns.{name}")
        for name, column in mapping.columns.items()
        if name not in present
    ]
    _no_doubles(columns, key)
    _check_key(source, mapping, kept, key)
    target = Table(
        mapping.name or source.full_name,
        columns,
        key=[kept[name] for name in source.key],
        indexes=[mapped for index in source.indexes if (mapped := map_index(index, kept)) is not None],
    )
    return MappedTable(source, mapping, target, kept)


def map_index(index: Index, kept: dict[str, str]) -> Index | None:
    """Return the index with the consumers' column names; None if the mapping leaves one of its columns out."""
    if not all(name in kept for name in index.directions):
        return None
    return replace(index, columns=[(kept[name], direction) for name, direction in index.directions.items()])


def _kept(source: Table, mapping: TableMapping, key: str) -> dict[str, str]:
    names = source.column_names
    for where, used in (("select", mapping.select or ()), ("rename", mapping.rename)):
        for name in used:
            if name not in names:
                raise wrong(
                    f"{key}.{where}", f"table {source.full_name} has no column {name!r}", nearest(name, list(names))
                )
    for name in mapping.rename:
        if mapping.name_of(name) is None:
            raise wrong(f"{key}.rename", f"column {name!r} is renamed but not selected", "add it to select")
    return {name: target for name in names if (target := mapping.name_of(name)) is not None}


def _column(column: Column, name: str, mapped: MappedColumn | None) -> Column:
    """Return an upstream's column as consumers get it: renamed, with the type of the expression that replaces it."""
    if mapped is None:
        return replace(column, name=name)
    kind: str = column.data_type if mapped.type is None else mapped.type
    optional = column.optional if mapped.optional is None else mapped.optional
    if isinstance(mapped.expression, Mask):
        if mapped.expression.mask == "null":
            optional = True
        elif mapped.type is None:
            kind = "text"
    return Column(name, kind, optional=optional)


def _new_column(name: str, mapped: MappedColumn, key: str) -> Column:
    if isinstance(mapped.expression, Mask):
        raise wrong(key, f"there is no column {name!r} to mask", "name a column as consumers see it, after renaming")
    if mapped.type is None:
        raise wrong(key, "a column that the upstream does not have needs a type", 'add type = "text", or another type')
    return Column(name, mapped.type, optional=mapped.optional is not False)


def _no_doubles(columns: Sequence[Column], key: str) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise wrong(key, f"two columns would be called {column.name!r}", "rename one of them, or leave it out")
        seen.add(column.name.lower())


def _check_key(source: Table, mapping: TableMapping, kept: dict[str, str], key: str) -> None:
    for name in source.key:
        if name not in kept:
            raise wrong(f"{key}.select", f"the key column {name!r} is left out", f"add {name!r} to select")
        match mapping.columns.get(kept[name]):
            case MappedColumn(Sql()):
                fix = "use a function: it must work on the key columns alone, which is all that a delete carries"
                raise wrong(f"{key}.columns.{kept[name]}", "a key column cannot be computed by SQL", fix)
            case MappedColumn(Mask("null" | "redact")):
                fix = 'use mask = "hash", or a function that gives different rows different keys'
                raise wrong(f"{key}.columns.{kept[name]}", "this mask gives all rows the same key", fix)
