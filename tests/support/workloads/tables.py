"""The same rows behind any kind of source, so that one test runs on all of them."""

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from reference_cache.zql.ivm.source import Expired, Source
from reference_cache.zql.ivm.store import RowStore
from reference_cache.zql.planner.cost import CostModel
from reference_cache.zql.planner.cost_model import SqliteCostModel
from reference_cache.zql.schema import Row, Schema, TableSchema
from reference_cache.zql.tables.followed import FollowedTable
from reference_cache.zql.tables.memory import MemoryTable
from service_kit.sqlite import quoted
from tests.support.zql.written_table import WrittenTable, encoder

SourceKind = Literal["memory", "sqlite", "followed"]
SOURCE_KINDS: tuple[SourceKind, ...] = ("memory", "sqlite", "followed")

_SQL_TYPES = {"string": "TEXT", "number": "NUMERIC", "boolean": "INTEGER", "json": "TEXT"}


def create_table(connection: sqlite3.Connection, table: TableSchema, rows: Iterable[Row] = ()) -> None:
    """A SQLite table as a replica would have it, filled. Without rowid, so that scans follow the primary key."""
    columns = ", ".join(f"{quoted(name)} {_SQL_TYPES[column.type]}" for name, column in table.columns.items())
    key = ", ".join(quoted(column) for column in table.primary_key)
    connection.execute(f"CREATE TABLE {quoted(table.name)} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
    encode = encoder(table) or tuple
    marks = ", ".join("?" * len(table.columns))
    connection.executemany(f"INSERT INTO {quoted(table.name)} VALUES ({marks})", [encode(row) for row in rows])


class Tables:
    """The tables of a schema, filled, in one kind of store."""

    def __init__(
        self,
        schema: Schema,
        rows: Mapping[str, Iterable[Mapping[str, Any]]],
        kind: SourceKind,
        *,
        expired: Expired | None = None,
    ) -> None:
        self._rows = {name: [table.row(row) for row in rows.get(name, ())] for name, table in schema.tables.items()}
        self._schema = schema
        self._kind = kind
        self._expired = expired
        self._connection = self._filled() if kind != "memory" else None

    def _filled(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        for name, table in self._schema.tables.items():
            create_table(connection, table, self._rows[name])
        return connection

    def open_source(self, table: TableSchema) -> Source:
        return Source(self.store(table), expired=self._expired)

    def store(self, table: TableSchema) -> RowStore:
        if self._connection is not None:
            return (WrittenTable if self._kind == "sqlite" else FollowedTable)(self._connection, table)
        return MemoryTable(table, self._rows[table.name])

    def cost_model(self) -> CostModel:
        """Estimates from SQLite's statistics of these rows."""
        connection = self._connection or self._filled()
        connection.execute("ANALYZE")
        return SqliteCostModel(connection)
