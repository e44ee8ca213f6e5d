"""A world as SQLite tables, for the second oracle and for the engine's SQLite source."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tests.oracle.worlds import Json, Row

# No type, no affinity: values come back as they went in.
SQL_TYPES = {"string": "TEXT", "number": "", "boolean": "INTEGER", "json": "TEXT"}


def create(connection: sqlite3.Connection, world: Json) -> None:
    """Create and fill the tables of a world, with an index for every declared relationship."""
    for name, table in world["schema"]["tables"].items():
        columns = ", ".join(f"{quoted(column)} {SQL_TYPES[spec['type']]}" for column, spec in table["columns"].items())
        key = ", ".join(map(quoted, table["primaryKey"]))
        connection.execute(f"CREATE TABLE {quoted(name)} ({columns}, PRIMARY KEY ({key}))")
        for row in world["rows"][name]:
            write(connection, table, {"op": "add", "table": name, "row": row})
    connection.commit()


def write(connection: sqlite3.Connection, table: Json, change: Json) -> None:
    """Apply one change to the tables."""
    if change["op"] != "add":
        key = table["primaryKey"]
        where = " AND ".join(f"{quoted(column)} = ?" for column in key)
        connection.execute(
            f"DELETE FROM {quoted(change['table'])} WHERE {where}", [change["row"][column] for column in key]
        )
    if change["op"] != "remove":
        marks = ", ".join("?" * len(table["columns"]))
        connection.execute(f"INSERT INTO {quoted(change['table'])} VALUES ({marks})", stored(table, change["row"]))


def stored(table: Json, row: Row) -> list[Any]:
    """A row's values as SQLite keeps them."""
    return [
        json.dumps(row[column]) if spec["type"] == "json" and row[column] is not None else row[column]
        for column, spec in table["columns"].items()
    ]


def quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
