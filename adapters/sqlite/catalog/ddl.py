"""The difference of two catalogs: the schema changes (`schema_diff`), and the tables whose rows must be sent. Pure.

After the schema changes, and in the same transaction, all rows are sent of tables that are new and of tables whose rows
the schema change itself altered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapters.sqlite.catalog.model import Catalog, ColumnDef, TableDef
from changesource_sdk import Default, SchemaChange
from changesource_sdk.toolkit import KnownTable, schema_diff

_NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")
_TEXT = re.compile(r"'([^'\\]*)'")


@dataclass(frozen=True, slots=True)
class Migration:
    """Schema changes in order, the new tables, and the existing tables whose rows must be sent again."""

    changes: tuple[SchemaChange, ...]
    created: tuple[TableDef, ...]
    resent: tuple[TableDef, ...]


def migration(old: Catalog, new: Catalog) -> Migration:
    """What takes a consumer from one catalog to another."""
    columns = {column.id: column for table in new.tables for column in table.columns}

    def default(_: int, number: int) -> Default:
        return known_default(columns[number])

    diff = schema_diff(_known(old), _known(new), default, key_index_follows=True)
    created = tuple(table for table in new.tables if table.id in diff.created)
    kept = ((old.table(table.id), table) for table in new.tables if table.id not in diff.created)
    return Migration(diff.changes, created, tuple(now for was, now in kept if was and _rows_altered(was, now)))


def _known(catalog: Catalog) -> list[KnownTable]:
    return [KnownTable(t.id, t.declared(), tuple(column.id for column in t.columns)) for t in catalog.tables]


def known_default(column: ColumnDef) -> Default:
    """The default as a value, if it is a literal that the consumer can apply to its rows; otherwise None."""
    text = (column.default or "").strip()
    if column.data_type == "text" and (match := _TEXT.fullmatch(text)):
        return match[1]
    if column.data_type == "bool" and text.lower() in ("true", "false", "0", "1"):
        return text.lower() in ("true", "1")
    if column.data_type in ("int8", "float8", "numeric") and _NUMBER.fullmatch(text):
        number = float(text) if "." in text else int(text)
        return number if column.data_type != "int8" or isinstance(number, int) else None
    return None


def _has_default(column: ColumnDef) -> bool:
    return column.default is not None and column.default.strip().upper() != "NULL"


def _rows_altered(before: TableDef, after: TableDef) -> bool:
    """Whether existing rows now differ from what the consumer has after applying the schema changes."""
    known = {column.id: column for column in before.columns}
    for column in after.columns:
        if column.id not in known:
            if _has_default(column) and known_default(column) is None:
                return True
        elif known[column.id].data_type != column.data_type:
            return True
    return before.revision != after.revision
