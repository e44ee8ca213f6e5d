"""A consumer's replica in plain SQLite: every message becomes the statement that its description calls for.

An oracle, so nothing here is clever: no folding, no shortcuts, types declared as the consumer declares them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from protocol.framing import unframe
from protocol.specs import replica_name, sql_default


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def name_of(identifier: Mapping[str, str]) -> str:
    return quoted(replica_name(identifier["schema"], identifier["name"]))


def bound(value: object) -> object:
    """The consumer binds numbers as floating-point, but for those that would lose digits."""
    return float(value) if isinstance(value, int) and abs(value) < 2**53 else value


class SqliteReplica:
    """Tables as a consumer has them after all frames given."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self._columns: dict[str, dict[str, str]] = {}

    def take(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            for payload in unframe(chunk):
                message = json.loads(payload)
                if message[0] == "data":
                    self._apply(message[1])

    def contents(self) -> dict[str, list[dict[str, object]]]:
        """Rows of every table, with the storage class of each value."""
        found = {}
        for (name,) in self.db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            cursor = self.db.execute(f"SELECT * FROM {quoted(name)}")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
            found[name] = sorted(rows, key=lambda row: repr(sorted(row.items())))
        return found

    def declared(self) -> set[tuple[str, str, str]]:
        """All columns with their types."""
        return {(t, name, kind) for t, columns in self._columns.items() for name, kind in columns.items()}

    def indexes(self) -> set[tuple[str, str]]:
        query = "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index'"
        return {(name, table) for name, table in self.db.execute(query)}

    def _apply(self, change: dict[str, Any]) -> None:
        getattr(self, "_" + change["tag"].replace("-", "_"))(change)

    def _insert(self, change: dict[str, Any]) -> None:
        new = change["new"]
        names = ", ".join(map(quoted, new))
        marks = ", ".join("?" * len(new))
        table = name_of(change["relation"])
        self.db.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", [*map(bound, new.values())])

    def _update(self, change: dict[str, Any]) -> None:
        new = change["new"]
        key = change["key"] or {name: new[name] for name in change["relation"]["rowKey"]["columns"]}
        sets = ", ".join(f"{quoted(name)} = ?" for name in new)
        where = " AND ".join(f"{quoted(name)} = ?" for name in key)
        values = [bound(value) for value in (*new.values(), *key.values())]
        statement = f"UPDATE {name_of(change['relation'])} SET {sets} WHERE {where}"
        if self.db.execute(statement, values).rowcount == 0:
            self._insert(change)

    def _delete(self, change: dict[str, Any]) -> None:
        key = change["key"]
        where = " AND ".join(f"{quoted(name)} = ?" for name in key)
        self.db.execute(f"DELETE FROM {name_of(change['relation'])} WHERE {where}", [*map(bound, key.values())])

    def _truncate(self, change: dict[str, Any]) -> None:
        for relation in change["relations"]:
            self.db.execute(f"DELETE FROM {name_of(relation)}")

    def _create_table(self, change: dict[str, Any]) -> None:
        spec = change["spec"]
        types = {name: column["dataType"] for name, column in spec["columns"].items()}
        columns = ", ".join(f"{quoted(name)} {quoted(kind)}" for name, kind in types.items())
        self.db.execute(f"CREATE TABLE {name_of(spec)} ({columns})")
        self._columns[name_of(spec)] = types

    def _drop_table(self, change: dict[str, Any]) -> None:
        self.db.execute(f"DROP TABLE IF EXISTS {name_of(change['id'])}")
        self._columns.pop(name_of(change["id"]), None)

    def _rename_table(self, change: dict[str, Any]) -> None:
        self.db.execute(f"ALTER TABLE {name_of(change['old'])} RENAME TO {name_of(change['new'])}")
        self._columns[name_of(change["new"])] = self._columns.pop(name_of(change["old"]))

    def _add_column(self, change: dict[str, Any]) -> None:
        column, table = change["column"], name_of(change["table"])
        default = sql_default(column["spec"].get("dflt"))
        clause = f" DEFAULT {default}" if default is not None else ""
        kind = column["spec"]["dataType"]
        self.db.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(column['name'])} {quoted(kind)}{clause}")
        self._columns[table][column["name"]] = kind

    def _drop_column(self, change: dict[str, Any]) -> None:
        self.db.execute(f"ALTER TABLE {name_of(change['table'])} DROP COLUMN {quoted(change['column'])}")
        del self._columns[name_of(change["table"])][change["column"]]

    def _update_column(self, change: dict[str, Any]) -> None:
        table, old, new = name_of(change["table"]), change["old"], change["new"]
        types = self._columns[table]
        if old["name"] != new["name"]:
            statement = f"ALTER TABLE {table} RENAME COLUMN {quoted(old['name'])} TO {quoted(new['name'])}"
            self.db.execute(statement)
        types.pop(old["name"])
        types[new["name"]] = new["spec"]["dataType"]
        if old["spec"]["dataType"] != new["spec"]["dataType"]:
            self._rebuild(table)

    def _rebuild(self, table: str) -> None:
        """The same rows in a table of the present types; indexes are made again."""
        query = f"SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = {table.replace(chr(34), chr(39))}"
        indexes = [sql for (sql,) in self.db.execute(query)]
        types = self._columns[table]
        columns = ", ".join(f"{quoted(name)} {quoted(kind)}" for name, kind in types.items())
        names = ", ".join(map(quoted, types))
        self.db.execute(f"CREATE TABLE rebuilt ({columns})")
        self.db.execute(f"INSERT INTO rebuilt ({names}) SELECT {names} FROM {table}")
        self.db.execute(f"DROP TABLE {table}")
        self.db.execute(f"ALTER TABLE rebuilt RENAME TO {table}")
        for sql in indexes:
            self.db.execute(sql)

    def _create_index(self, change: dict[str, Any]) -> None:
        spec = change["spec"]
        name = quoted(replica_name(spec["schema"], spec["name"]))
        table = quoted(replica_name(spec["schema"], spec["tableName"]))
        columns = ", ".join(f"{quoted(column)} {direction}" for column, direction in spec["columns"].items())
        self.db.execute(f"CREATE {'UNIQUE ' if spec['unique'] else ''}INDEX {name} ON {table} ({columns})")

    def _drop_index(self, change: dict[str, Any]) -> None:
        self.db.execute(f"DROP INDEX IF EXISTS {name_of(change['id'])}")
