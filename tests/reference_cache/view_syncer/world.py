"""A small replica that tests write, and what any query gives on it, asked of a fresh engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol import watermark
from protocol.changes import CreateIndex, CreateTable, SchemaChange, Truncate
from protocol.rules.required_tables import required_tables
from protocol.specs import ColumnSpec, IndexSpec, TableSpec
from protocol.sync.ast import Query
from reference_cache.replica.replica import open_replica
from reference_cache.replica.schema import read_schema
from reference_cache.replica.stored_catalog import Origin
from reference_cache.replica.writing.initial_load import load_new, load_over
from reference_cache.replica.writing.writer import open_writer
from reference_cache.zql.schema import Schema
from reference_cache.zql.tables.memory import memory_source
from reference_cache.zql.tables.sqlite_codec import decoder
from service_kit.sqlite import quoted
from tests.support.zql.recording_engine import RecordingEngine

ORIGIN = Origin("zero")
TYPES = {"string": "text", "number": "float8", "boolean": "bool", "json": "json"}

Rows = dict[tuple[str, str], dict[str, Any]]
"""Rows by table and key (as JSON)."""

APP_TABLES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "issue": ({"id": "string", "owner": "string", "open": "boolean", "rank": "number", "extra": "json"}, ("id",)),
    "comment": ({"id": "string", "issue": "string", "text": "string"}, ("id",)),
    "label": ({"issue": "string", "name": "string"}, ("issue", "name")),
}


def row_key(table: str, row: Mapping[str, Any], keys: Mapping[str, tuple[str, ...]]) -> str:
    return json.dumps({column: row[column] for column in keys[table]}, separators=(",", ":"))


class World:
    """The replica and its one writer. Versions count up from 01."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self._read: tuple[str, Schema, dict[str, list[tuple[Any, ...]]]] | None = None
        self.keys = {name: key for name, (_, key) in APP_TABLES.items()}
        self._load(load_new(path, ORIGIN))

    def _load(self, load: Any) -> None:
        self.number += 1
        load.begin(self.version, "p")
        tables = {name: (columns, self.keys[name]) for name, (columns, _) in APP_TABLES.items()}
        required = required_tables(ORIGIN.app_id, ORIGIN.shard_num)
        system_keys = (("clientGroupID", "clientID"), ("clientGroupID", "clientID", "mutationID"), ("lock",))
        tables |= {name: (dict(required[name]), key) for name, key in zip(required, system_keys, strict=True)}
        for name, (columns, key) in tables.items():
            load.change(create_table(name, columns, key))
            load.change(create_index(name, key))
        load.rows("zero.permissions").insert({"lock": True, "permissions": None, "hash": None}, ("lock",))
        self.writer = load.finish()

    @property
    def version(self) -> str:
        return watermark.from_int(self.number)

    def start_over(self) -> None:
        """Another initial sync, into the same file."""
        self.writer.close()
        self._load(load_over(self.path, ORIGIN))

    def back_up(self, path: Path) -> None:
        """Copy the file, complete."""
        self.writer.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(self.path, path)

    def restore(self, path: Path) -> None:
        """Go back to a copy, and on from the version it has."""
        self.writer.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(path, self.path)
        self.writer = open_writer(self.path, ORIGIN)
        self.number = watermark.to_int(self.writer.state.version)[0]

    def commit(self, *changes: tuple[Any, ...] | SchemaChange | Truncate) -> str:
        """One transaction: ("put", table, row), ("del", table, key row), or a schema change. Its version."""
        self.number += 1
        self.writer.begin(self.version, "p")
        for change in changes:
            if isinstance(change, tuple):
                self._change(*change)
            else:
                self.writer.change(change)
        self.writer.commit()
        self.writer.flush()
        return self.version

    def _change(self, op: str, table: str, row: dict[str, Any]) -> None:
        key = self.keys.get(table, SYSTEM_KEYS.get(table, ()))
        sink = self.writer.rows(table)
        if op == "put":
            sink.insert(row, key)
        else:
            sink.delete({column: row[column] for column in key}, key)

    def tables(self) -> tuple[Schema, dict[str, list[tuple[Any, ...]]]]:
        """The replica's rows, as the engine has them."""
        if self._read is None or self._read[0] != self.version:
            self._read = (self.version, *self._read_tables())
        return self._read[1:]

    def _read_tables(self) -> tuple[Schema, dict[str, list[tuple[Any, ...]]]]:
        connection = open_replica(self.path).connect()
        try:
            schema = read_schema(connection).engine_schema
            probe = {name: _rows(connection, schema, name) for name in schema.tables}
        finally:
            connection.close()
        return schema, probe

    def rows_of(self, queries: list[Query]) -> Rows:
        """The rows of all these queries together, evaluated from nothing."""
        schema, rows = self.tables()
        engine = RecordingEngine(schema, lambda table: memory_source(table, rows[table.name]))
        found: Rows = {}
        for number, query in enumerate(queries):
            for change in engine.rows(str(number), query):
                named = dict(zip(list(schema.tables[change.table].columns)[:-1], change.row, strict=False))
                found[change.table, row_key(change.table, named, self.keys)] = named
        return found

    def everything(self) -> Rows:
        """All rows of the application's tables."""
        schema, rows = self.tables()
        found: Rows = {}
        for table in APP_TABLES:
            for row in rows[table]:
                named = dict(zip(list(schema.tables[table].columns)[:-1], row, strict=False))
                found[table, row_key(table, named, self.keys)] = named
        return found


SYSTEM_KEYS = {
    "zero_0.clients": ("clientGroupID", "clientID"),
    "zero_0.mutations": ("clientGroupID", "clientID", "mutationID"),
    "zero.permissions": ("lock",),
}


def _rows(connection: Any, schema: Schema, name: str) -> list[tuple[Any, ...]]:
    table = schema.tables[name]
    columns = ", ".join(map(quoted, table.columns))
    rows = connection.execute(f"SELECT {columns} FROM {quoted(name)}").fetchall()
    decode = decoder(table)
    return rows if decode is None else [decode(row) for row in rows]


def create_table(name: str, columns: Mapping[str, str], key: tuple[str, ...]) -> CreateTable:
    schema, _, table = name.rpartition(".")
    specs = {
        column: ColumnSpec(pos=place, data_type=TYPES[kind], not_null=column in key)
        for place, (column, kind) in enumerate(columns.items())
    }
    return CreateTable(spec=TableSpec(schema=schema or "public", name=table, columns=specs))


def create_index(name: str, key: tuple[str, ...]) -> CreateIndex:
    schema, _, table = name.rpartition(".")
    index = f"{table}_{'_'.join(key)}"
    spec = IndexSpec(
        schema=schema or "public", name=index, table_name=table, unique=True, columns=dict.fromkeys(key, "ASC")
    )
    return CreateIndex(spec=spec)
