"""The triggers that record changes, as SQL text. Pure.

Each synced table has triggers that append the key of every touched row to one table of the database. They record keys
only: the row is looked up when the changes are read. The columns for keys have no affinity, so that SQLite stores the
values without converting them.

`replace_*` triggers record the rows that `INSERT OR REPLACE` and `UPDATE OR REPLACE` remove because of another unique
constraint: SQLite does not fire delete triggers for those. The `columns` trigger never runs. It lists the table's
columns, so that SQLite keeps the list up to date when they are renamed (see `identity`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from adapters.sqlite.catalog.introspect import OWN, quoted
from adapters.sqlite.catalog.model import TableDef

CHANGES = f"{OWN}changes"
INSERTED, UPDATED, REMOVED = 1, 2, 3
ESSENTIAL = ("insert", "update", "delete", "columns")

_NAME = re.compile(rf"{OWN}(\d+)_(\w+)")
_IDENTIFIER = re.compile(r'"((?:[^"]|"")*)"')
_LISTING = re.compile(r' AFTER UPDATE OF ((?:"(?:[^"]|"")*"(?:, )?)+)')


def key_columns(width: int) -> list[str]:
    """The columns of the changes table that hold the key."""
    return [f"k{number}" for number in range(1, width + 1)]


def trigger_name(table_id: int, kind: str) -> str:
    """The name of a trigger, which contains the identity of its table."""
    return f"{OWN}{table_id}_{kind}"


def parse_name(name: str) -> tuple[int, str] | None:
    """The table's identity and the trigger's kind; None if it is not one of our triggers."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def listed_columns(sql: str) -> tuple[str, ...]:
    """The column names in the text of a `columns` trigger, as SQLite has rewritten it."""
    listing = _LISTING.search(sql)
    return tuple(name.replace('""', '"') for name in _IDENTIFIER.findall(listing[1])) if listing else ()


def table_triggers(table: TableDef) -> dict[str, str]:
    """The statements that create a table's triggers, by trigger name."""
    new, old = _values("NEW", table.key), _values("OLD", table.key)
    key_changed = " OR ".join(f"OLD.{c} COLLATE BINARY IS NOT NEW.{c}" for c in map(quoted, table.key))
    bodies = {
        "insert": ("AFTER INSERT", [_record(table, INSERTED, f"SELECT {new}")]),
        "update": (
            "AFTER UPDATE",
            [
                _record(table, REMOVED, f"SELECT {old} WHERE {key_changed}"),
                # A row whose key changed is a delete of the old key and an insert of the new one.
                _record(table, f"CASE WHEN {key_changed} THEN {INSERTED} ELSE {UPDATED} END", f"SELECT {new}"),
            ],
        ),
        "delete": ("AFTER DELETE", [_record(table, REMOVED, f"SELECT {old}")]),
        "columns": (f"AFTER UPDATE OF {', '.join(map(quoted, table.column_names))}", []),
    }
    if table.unique_sets:
        bodies["replace_insert"] = ("BEFORE INSERT", _replaced(table, ""))
        same = " AND ".join(f"{c} IS OLD.{c}" for c in map(quoted, table.key))
        bodies["replace_update"] = ("BEFORE UPDATE", _replaced(table, f" AND NOT ({same})"))
    return {trigger_name(table.id, kind): _create(table, kind, *body) for kind, body in bodies.items()}


def _create(table: TableDef, kind: str, event: str, statements: Iterable[str]) -> str:
    name, body = quoted(trigger_name(table.id, kind)), " ".join(f"{statement};" for statement in statements)
    never = "" if body else " WHEN 0"
    return f"CREATE TRIGGER {name} {event} ON {quoted(table.name)}{never} BEGIN {body or 'SELECT 1;'} END"


def _record(table: TableDef, operation: int | str, keys: str) -> str:
    columns = ", ".join(key_columns(len(table.key)))
    recorded = keys.replace("SELECT ", f"SELECT {table.id}, {operation}, ", 1)
    return f"INSERT INTO {CHANGES} (tbl, op, {columns}) {recorded}"


def _replaced(table: TableDef, condition: str) -> list[str]:
    key = ", ".join(map(quoted, table.key))
    statements = []
    for unique in table.unique_sets:
        equal = " AND ".join(f"{quoted(c)} = NEW.{quoted(c)} COLLATE {collation}" for c, collation in unique.columns)
        statements.append(_record(table, REMOVED, f"SELECT {key} FROM {quoted(table.name)} WHERE {equal}{condition}"))
    return statements


def _values(row: str, columns: Iterable[str]) -> str:
    return ", ".join(f"{row}.{quoted(column)}" for column in columns)
