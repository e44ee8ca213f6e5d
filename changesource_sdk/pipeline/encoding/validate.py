"""Schema changes that a consumer could not apply, refused before they are stored.

A consumer acknowledges a transaction before it applies it. What it cannot apply stops it now and again on every
start, until someone resets it; so whatever would do that is an error here, naming the place and the fix. Row values
are checked where they are converted (`normalize`, `encode`); this module knows tables, columns and indexes.

SQLite's rules hold, because replicas are SQLite files: names are compared without case, and tables and indexes of one
schema share one set of names.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameTable,
    SchemaChange,
)
from changesource_sdk.errors import InvalidChange, ResyncRequired
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.normalize import Unsuitable, converter
from changesource_sdk.schema import Column, Index, Table, canonical_name
from protocol.specs import RESERVED_TABLES, VERSION_COLUMN, understood_default
from protocol.watermark import is_valid
from service_kit.suggestions import closest

BINARY_TYPES = ("bytea", "blob", "binary", "varbinary")
_SYSTEM_TABLE = re.compile(r"[^.]+_[0-9]+\.(clients|mutations)|[^.]+\.permissions")


def check(schema: ConsumerSchema, change: SchemaChange) -> None:
    """Raise `InvalidChange` unless a consumer with this schema can apply the change."""
    match change:
        case CreateTable(table):
            _no_system_table(table.full_name)
            check_table(schema, table)
        case DropTable(name):
            _no_system_table(canonical_name(name))
        case RenameTable(old, new):
            _no_system_table(canonical_name(old))
            _no_system_table(canonical_name(new))
            known_table(schema, old)
            _free_name(schema, canonical_name(new), f"rename of table {old}")
            _allowed_table_name(canonical_name(new))
        case AddColumn(name, column):
            table = known_table(schema, name)
            _check_column(table.full_name, column)
            _free_column(table, column.name)
            _check_default(table.full_name, column)
        case AlterColumn(name, old_name, column):
            _check_alter(known_table(schema, name), old_name, column)
        case DropColumn(name, gone):
            _check_drop_column(schema, known_table(schema, name), gone)
        case CreateIndex(index):
            _check_index(schema, known_table(schema, index.table), index)
        case DropIndex(name):
            _check_drop_index(schema, canonical_name(name))


def check_table(schema: ConsumerSchema, table: Table) -> None:
    """Raise `InvalidChange` unless this table, with its indexes, can be added to the schema."""
    name = table.full_name
    _allowed_table_name(name)
    _free_name(schema, name, f"table {name}")
    if not table.columns:
        raise InvalidChange("no-columns", "a table needs columns", f"table {name}", "declare at least one column")
    seen: set[str] = set()
    for column in table.columns:
        _check_column(name, column)
        if column.name.lower() in seen:
            raise _clash(f"column {column.name} appears twice (names are compared without case)", f"table {name}")
        seen.add(column.name.lower())
    for key in table.key:
        if table.column(key) is None:
            raise InvalidChange(
                "unknown-column",
                f"the key names {key!r}, which is none of its columns{_nearest(key, table.column_names)}",
                f"table {name}",
                "declare the columns that identify a row: Table(…, key=(…)); without key= it is ('id',)",
            )
        _check_key_type(name, known_column(table, key))
    with_table = ConsumerSchema({**schema.tables, name: table}, schema.indexes)
    for index in schema.indexes_for(table):
        _check_index(with_table, table, index)
        with_table = with_table.apply(CreateIndex(index))


def _check_key_type(table: str, column: Column) -> None:
    if column.data_type.lower() in BINARY_TYPES:
        raise InvalidChange(
            "bad-key-type",
            f"a key of type {column.data_type} cannot be synced: clients have no bytes",
            f"table {table}, column {column.name}",
            "declare the column as text and give its hexadecimal or base64 form",
        )


def known_table(schema: ConsumerSchema, name: str) -> Table:
    """Return the table of that name. Raises `InvalidChange`, which suggests the nearest name."""
    table = schema.tables.get(canonical_name(name))
    if table is None:
        raise InvalidChange(
            "unknown-table",
            f"consumers have no table {name!r}{_nearest(name, schema.tables)}",
            fix="declare it in tables(), or send CreateTable before its rows",
        )
    return table


def known_column(table: Table, name: str) -> Column:
    """Return the column of that name. Raises `InvalidChange`, which suggests the nearest name."""
    column = table.column(name)
    if column is None:
        raise InvalidChange(
            "unknown-column",
            f"there is no column {name!r}{_nearest(name, table.column_names)}",
            where=f"table {table.full_name}",
            fix="declare it in tables(), or send AddColumn before rows that have it",
        )
    return column


def known_watermark(watermark: str | None, where: str) -> None:
    """Raise unless an adapter's own watermark, if it gives one, can name a commit."""
    if watermark is not None and not is_valid(watermark):
        raise InvalidChange(
            "bad-watermark",
            f"{watermark!r} is no watermark",
            where,
            "make watermarks with protocol.watermark.from_int, or give none",
        )


def _nearest(name: str, names: Collection[str]) -> str:
    """A hint for a message: the most similar of the known names, if any is."""
    close = closest(name, names)
    return f"; did you mean {close!r}?" if close else ""


def _no_system_table(name: str) -> None:
    if _SYSTEM_TABLE.fullmatch(name):
        raise ResyncRequired(
            "system-table-changed",
            f"the upstream created, dropped or renamed {name}, which consumers already have in another form",
            where=f"table {name}",
            fix="nothing to do: a new snapshot is taken and consumers are reset",
        )


def _allowed_table_name(name: str) -> None:
    if not name or name.lower().startswith(RESERVED_TABLES):
        raise InvalidChange(
            "reserved-name",
            f"the table name {name!r} is empty or reserved by the consumer",
            fix=f"rename or exclude it; reserved prefixes are {', '.join(RESERVED_TABLES)}",
        )


def _free_name(schema: ConsumerSchema, name: str, where: str) -> None:
    taken = {known.lower() for known in (*schema.tables, *schema.indexes)}
    if name.lower() in taken:
        raise _clash(f"the name {name!r} is taken by another table or index", where)


def _clash(message: str, where: str) -> InvalidChange:
    return InvalidChange("name-taken", message, where, "choose a name that is free; name indexes <table>_<something>")


def _check_column(table: str, column: Column) -> None:
    where = f"table {table}, column {column.name}"
    if not column.name or column.name.lower() == VERSION_COLUMN:
        raise InvalidChange("reserved-name", "the column name is empty or reserved by the consumer", where, "rename it")
    if not column.data_type or "|" in column.data_type or "[]" in column.data_type.removesuffix("[]"):
        raise InvalidChange(
            "bad-type",
            f"{column.data_type!r} is no type name a consumer can take",
            where,
            "give a type such as text, int8 or text[]; an array has one pair of brackets, at the end",
        )


def _free_column(table: Table, name: str) -> None:
    if name.lower() in {column.name.lower() for column in table.columns}:
        raise _clash(
            f"there is already a column {name!r} (names are compared without case)", f"table {table.full_name}"
        )


def _check_default(table: str, column: Column) -> None:
    where = f"table {table}, column {column.name}"
    fix = "leave the default out and send Update for every row in the same transaction"
    if not understood_default(column.spec().dflt):
        raise InvalidChange("default-not-understood", "the column's default is beyond what consumers read", where, fix)
    if column.default is not None and column.default_sql is None and column.kind not in ("json", "array"):
        try:
            converter(column)(column.default)
        except Unsuitable as error:
            raise InvalidChange(
                "default-does-not-fit", f"the column's default is {error.reason}", where, fix
            ) from error


def _check_alter(table: Table, old_name: str, column: Column) -> None:
    known_column(table, old_name)
    _check_column(table.full_name, column)
    if column.name.lower() != old_name.lower():
        _free_column(table, column.name)


def _check_drop_column(schema: ConsumerSchema, table: Table, name: str) -> None:
    known_column(table, name)
    users = [index.name for index in schema.indexes_on(table.full_name) if name in index.directions]
    if users or name in table.key:
        raise InvalidChange(
            "column-in-use",
            f"the column is part of {'index ' + ', '.join(users) if users else 'the key'}",
            f"table {table.full_name}, column {name}",
            "send DropIndex first; if it is in the key, drop and create the table",
        )
    if len(table.columns) == 1:
        raise InvalidChange(
            "no-columns", "a table needs columns", f"table {table.full_name}", "send DropTable for the last column"
        )


def _check_index(schema: ConsumerSchema, table: Table, index: Index) -> None:
    where = f"index {index.name} of table {table.full_name}"
    _free_name(schema, index.full_name, where)
    if not index.name or not index.directions:
        raise InvalidChange("bad-index", "an index needs a name and columns", where, "name it and its columns")
    for column in index.directions:
        known_column(table, column)


def _check_drop_index(schema: ConsumerSchema, name: str) -> None:
    index = schema.indexes.get(name)
    if index is None or not index.unique:
        return
    table = schema.tables[index.table]
    others = [i for key, i in schema.indexes.items() if key != name and i.table == index.table and i.unique]
    if set(index.directions) == set(table.key) and not any(set(i.directions) == set(table.key) for i in others):
        raise InvalidChange(
            "key-index",
            "the index is what makes the table's key",
            f"index {name} of table {index.table}",
            "drop and create the table with its new key",
        )
