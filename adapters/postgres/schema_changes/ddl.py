"""The difference of two catalogs: the schema changes, and the tables whose rows must be sent again. Pure.

A consumer applies a schema change in SQLite, and the result is not always that of Postgres: a computed default, a type
change that converts values, a partition that is attached with its rows. All rows of such tables are sent again in the
same transaction.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from adapters.postgres.catalog.model import Catalog, ColumnDef, TableDef
from changesource_sdk import Default, SchemaChange
from changesource_sdk.toolkit import KnownTable, schema_diff

_INTEGER = re.compile(r"'?(-?\d{1,18})'?(?:::\w+)?")
_NUMBER = re.compile(r"'?(-?\d{1,15}(?:\.\d{1,15})?)'?(?:::[\w ]+)?")
_TEXT = re.compile(r"'((?:[^'\\]|'')*)'::[\w .\"]+")
_NULL = re.compile(r"NULL::.*")


@dataclass(frozen=True, slots=True)
class Notice:
    """How a new catalog became known.

    `is_exact` says that a single command lies between the two catalogs, so an added column is really new. `rewritten`
    are the tables that the command rewrote.
    """

    is_exact: bool = False
    rewritten: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Migration:
    """Schema changes in order, the new tables, and the existing tables whose rows must be sent again."""

    changes: tuple[SchemaChange, ...]
    created: tuple[TableDef, ...]
    resent: tuple[TableDef, ...]


def migration(old: Catalog, new: Catalog, notice: Notice) -> Migration:
    """What takes a consumer from one catalog to another."""
    columns = {(table.oid, column.number): column for table in new.tables for column in table.columns}

    def default(oid: int, number: int) -> Default:
        return _known_default(columns[oid, number])[1]

    diff = schema_diff(_known(old), _known(new), default)
    created = tuple(table for table in new.tables if table.oid in diff.created)
    resent = [new.table(now.id) for was, now in diff.kept if _is_resent(old.table(was.id), new.table(now.id), notice)]
    return Migration(diff.changes, created, tuple(table for table in resent if table is not None))


def _known(catalog: Catalog) -> list[KnownTable]:
    """Tables with identities. Declared columns that the database does not have get negative numbers."""
    known = []
    for table in catalog.tables:
        declared = table.declared()
        numbers = [column.number for column in table.columns]
        beyond = range(-len(declared.columns) + len(numbers), 0)
        known.append(KnownTable(table.oid, declared, (*numbers, *beyond)))
    return known


def _is_resent(was: TableDef | None, now: TableDef | None, notice: Notice) -> bool:
    """Whether the rows differ from what a consumer has after applying the schema changes."""
    if was is None or now is None:
        return False
    if now.oid in notice.rewritten or was.row_filter != now.row_filter or was.partitions != now.partitions:
        return True
    known = {column.number: column for column in was.columns}
    if any(_changed_values(known[c.number], c, notice) for c in now.columns if c.number in known):
        return True
    added = [column for column in now.columns if column.number not in known]
    return bool(added) and not _are_new(was, now, added, notice)


def _changed_values(was: ColumnDef, now: ColumnDef, notice: Notice) -> bool:
    if was.type_oid != now.type_oid:
        return True
    return was.typmod != now.typmod and not notice.is_exact


def _are_new(was: TableDef, now: TableDef, added: Collection[ColumnDef], notice: Notice) -> bool:
    """Whether existing rows have the values in the added columns that a consumer fills in."""
    appeared = set(was.unsynced) - set(now.unsynced)
    return notice.is_exact and not appeared and all(_known_default(column)[0] for column in added)


def _known_default(column: ColumnDef) -> tuple[bool, Default]:
    """Whether the default is a literal that a consumer can fill in, and its value."""
    text = column.default
    if text is None or _NULL.fullmatch(text):
        return True, None
    if column.data_type == "bool" and text in ("true", "false"):
        return True, text == "true"
    if column.data_type in ("int2", "int4", "int8") and (literal := _INTEGER.fullmatch(text)):
        return True, int(literal[1])
    if column.data_type in ("numeric", "float8") and (literal := _NUMBER.fullmatch(text)):
        return True, float(literal[1]) if "." in literal[1] else int(literal[1])
    if (column.data_type in ("text", "varchar") or column.enum) and not column.data_type.endswith("[]"):
        literal = _TEXT.fullmatch(text)
        return literal is not None, literal[1].replace("''", "'") if literal else None
    return False, None
