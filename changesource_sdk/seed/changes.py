"""Applies row changes of the log to the tables of a replica file, as zero-cache applies them to its replica.

An insert replaces rows with the same value in any unique index; an update of a missing row inserts it; a delete of a
missing row does nothing. All rows have the version of the seed, as after an initial sync. Schema changes are not
handled here: a log that has some goes through `pipeline.compaction`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from changesource_sdk.pipeline.compaction.fold import Change
from changesource_sdk.schema import Table
from changesource_sdk.seed.rows import RowDecoder
from protocol.specs import VERSION_COLUMN, replica_name
from service_kit.sqlite import quoted


class ChangeWriter:
    """Writes changes through one connection, inside the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection, tables: Mapping[str, Table], version: str) -> None:
        self._connection = connection
        self._decoders = {name: RowDecoder(table) for name, table in tables.items()}
        self._version = version

    def apply(self, changes: Iterable[Change]) -> int:
        """Apply changes in order; returns how many there were."""
        count = 0
        for _, payload in changes:
            self._apply(orjson.loads(payload)[1])
            count += 1
        return count

    def _apply(self, change: Mapping[str, Any]) -> None:
        match change["tag"]:
            case "insert":
                self._put(_name(change["relation"]), change["new"])
            case "update":
                self._update(change)
            case "delete":
                name = _name(change["relation"])
                where, values = self._where(name, change["relation"]["rowKey"]["columns"], change["key"])
                self._connection.execute(f"DELETE FROM {quoted(name)} WHERE {where}", values)
            case "truncate":
                for relation in change["relations"]:
                    self._connection.execute(f"DELETE FROM {quoted(_name(relation))}")
            case tag:
                raise AssertionError(f"{tag} is not a change of rows")

    def _update(self, change: Mapping[str, Any]) -> None:
        name, new = _name(change["relation"]), change["new"]
        columns = change["relation"]["rowKey"]["columns"]
        where, key = self._where(name, columns, new if change["key"] is None else change["key"])
        assigned = ", ".join(f"{quoted(column)} = ?" for column in new)
        sql = f"UPDATE OR REPLACE {quoted(name)} SET {assigned} WHERE {where}"
        if not self._connection.execute(sql, (*self._values(name, new), *key)).rowcount:
            self._put(name, new)

    def _put(self, name: str, row: Mapping[str, object]) -> None:
        columns = ", ".join(map(quoted, (*row, VERSION_COLUMN)))
        marks = "?, " * len(row)
        sql = f"INSERT OR REPLACE INTO {quoted(name)} ({columns}) VALUES ({marks}'{self._version}')"
        self._connection.execute(sql, self._values(name, row))

    def _where(self, name: str, columns: list[str], row: Mapping[str, object]) -> tuple[str, tuple[object, ...]]:
        key = {column: row[column] for column in columns}
        return " AND ".join(f"{quoted(column)} = ?" for column in columns), self._values(name, key)

    def _values(self, name: str, row: Mapping[str, object]) -> tuple[object, ...]:
        value = self._decoders[name].value
        return tuple(value(column, each) for column, each in row.items())


def _name(relation: Mapping[str, str]) -> str:
    return replica_name(relation["schema"], relation["name"])
