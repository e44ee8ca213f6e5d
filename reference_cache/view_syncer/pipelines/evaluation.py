"""Queries over one snapshot of the replica, with rows identified the way the clients identify them.

Clients name a key for each table, which may be any of its unique keys. Normally they all name the same ones and there
is a single evaluation; clients of another opinion get another, over the same snapshot.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from protocol.sync.ast import Query
from protocol.sync.messages import ClientSchema
from reference_cache.view_syncer.pipelines.row_keys import RowKeys
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.engine.shared import SharedQueries, SharedQuery
from reference_cache.zql.ivm.change import Edit, Pause, SourceChange, add, remove
from reference_cache.zql.ivm.effort import Effort
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.planner.cost import CostModel
from reference_cache.zql.schema import Schema, TableSchema
from reference_cache.zql.tables.followed import FollowedTable

KeyChoice: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Tables whose rows are identified by another key than the first, and by which; sorted."""


def key_choice(client: ClientSchema, schema: Schema) -> KeyChoice:
    """How a client identifies rows; the client's schema has been checked."""
    return tuple(
        (name, tuple(table.primary_key))
        for name, table in sorted(client.tables.items())
        if name in schema.tables and tuple(table.primary_key) != schema.tables[name].primary_key
    )


def keyed_schema(schema: Schema, choice: KeyChoice) -> Schema:
    """The schema with these keys as the primary ones."""
    tables = dict(schema.tables)
    for name, key in choice:
        table = tables[name]
        others = tuple(each for each in table.keys if set(each) != set(key))
        tables[name] = replace(table, primary_key=key, unique_keys=others)
    return Schema(tables)


class Evaluation:
    """The pipelines of one way of identifying rows. Invariant: all of them read the same snapshot."""

    def __init__(
        self,
        schema: Schema,
        choice: KeyChoice,
        connection: sqlite3.Connection,
        effort: Effort | Callable[[], bool],
        cost_model: CostModel | None = None,
        most_rows: int | None = None,
    ) -> None:
        self.schema = keyed_schema(schema, choice)
        self.keys = RowKeys(self.schema)
        self.stores: dict[str, FollowedTable] = {}
        self._effort = effort
        self._checkpoint = effort.expired if isinstance(effort, Effort) else effort
        self.engine = Engine(
            self.schema, self._open, cost_model=cost_model, checkpoint=self._checkpoint, in_order=False
        )
        self.shared = SharedQueries(self.engine, most_rows)
        self.query_keys: dict[Query, str] = {}
        self._connection = connection

    def _open(self, table: TableSchema) -> Source:
        store = self.stores[table.name] = FollowedTable(self._connection, table, self._checkpoint)
        if isinstance(self._effort, Effort):
            return Source(store, effort=self._effort)
        return Source(store, expired=self._effort)

    def subscribe(self, query: Query) -> Iterator[Pause]:
        """Start a query, or join those who have it; read to the end."""
        return self.shared.subscribe(query)

    def push(self, table: str, change: SourceChange) -> None:
        """Take one change in; a row that changes its key goes, and another comes."""
        store = self.stores[table]
        if isinstance(change, Edit) and store.key(change.node.row) != store.key(change.old_node.row):
            self.shared.push(table, remove(change.old_node.row))
            self.shared.push(table, add(change.node.row))
        else:
            self.shared.push(table, change)

    def settle(self) -> list[SharedQuery]:
        """The queries that the changes pushed since the last time have touched."""
        return self.shared.settle()

    def move_to(self, connection: sqlite3.Connection) -> None:
        """Read a snapshot that has everything pushed so far."""
        self._connection = connection
        for store in self.stores.values():
            store.advance(connection)
