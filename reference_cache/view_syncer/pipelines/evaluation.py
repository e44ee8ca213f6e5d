"""An engine over one snapshot of the replica, with rows identified by the keys that clients chose.

The client schema names a primary key for each table, which may be any of the table's unique keys. Normally all clients
choose the same keys, and there is one evaluation; clients with other keys get another one, over the same snapshot.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable

from protocol.sync.ast import Query
from reference_cache.view_syncer.pipelines.distinct_query import DistinctQuery, KeyChoice, distinct_query, keyed_schema
from reference_cache.view_syncer.pipelines.query_rows import QueryRows
from reference_cache.view_syncer.pipelines.row_keys import RowKeys
from reference_cache.zql.engine.engine import Engine, Pipeline
from reference_cache.zql.ivm.change import Edit, SourceChange, add, remove
from reference_cache.zql.ivm.effort import Effort
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.planner.cost import CostModel
from reference_cache.zql.schema import Schema, TableSchema
from reference_cache.zql.tables.followed import FollowedTable

MOST_DISTINCT_QUERIES = 1024
"""Queries whose canonical form an evaluation remembers, because many groups desire the same ones."""


class Evaluation:
    """The query pipelines of one choice of keys. Invariant: all of them read the same snapshot.

    `effort` limits the work of the pipelines and is checked wherever they read rows; an evaluation aside passes a
    function instead, which pauses. `most_rows` limits the rows of one query's hydration (`TooManyRows`).

    The common evaluations are used on the event loop under `Pipelines.lock`; an evaluation aside has one user.
    """

    def __init__(
        self,
        schema: Schema,
        choice: KeyChoice,
        connection: sqlite3.Connection,
        effort: Effort | Callable[[], bool],
        cost_model: CostModel | None = None,
        most_rows: int = sys.maxsize,
    ) -> None:
        self.schema = keyed_schema(schema, choice)
        self._choice = choice
        self.keys = RowKeys(self.schema)
        self._effort = effort
        self._checkpoint = effort.expired if isinstance(effort, Effort) else effort
        self._most_rows = most_rows
        # By name, the tables that queries read: `_open` adds them on first use, and none is ever removed.
        self.stores: dict[str, FollowedTable] = {}
        # The sources over `stores`, under the same names.
        self._sources: dict[str, Source] = {}
        self.engine = Engine(
            self.schema, self._open, cost_model=cost_model, checkpoint=self._checkpoint, in_order=False
        )
        # The queries whose rows were touched since the last `settle`; `QueryRows` adds itself.
        self._touched: dict[QueryRows, None] = {}
        # Answers of `distinct`, by the query as clients send it.
        self._distinct: dict[Query, DistinctQuery] = {}
        # The snapshot that everything reads; replaced by `move_to`.
        self._connection = connection

    def _open(self, table: TableSchema) -> Source:
        store = FollowedTable(self._connection, table, self._checkpoint)
        effort = self._effort
        source = Source(store, effort=effort) if isinstance(effort, Effort) else Source(store, expired=effort)
        self.stores[table.name], self._sources[table.name] = store, source
        return source

    def distinct(self, query: Query) -> DistinctQuery:
        """The query's identity. Not for large queries: the result is kept, and computing it takes long."""
        known = self._distinct.get(query)
        if known is None:
            if len(self._distinct) >= MOST_DISTINCT_QUERIES:
                self._distinct.clear()
            known = self._distinct[query] = distinct_query(query, self._choice, self.schema)
        return known

    def start(self, query: Query) -> Pipeline[QueryRows]:
        """Build the pipeline of a canonical query; the caller hydrates it to the end before it pushes changes."""
        return self.engine.add_query(query, QueryRows(self.keys, self._touched, self._most_rows))

    def adopt(self, pipeline: Pipeline[QueryRows], other: Evaluation) -> None:
        """Take over a hydrated pipeline of another evaluation at the same version, with the same keys."""
        self.engine.adopt(pipeline, other.engine)
        pipeline.rows.move_to(self.keys, self._touched)

    def push(self, table: str, change: SourceChange) -> None:
        """Push one change of a table in `stores`; if it changes the row's key, it is pushed as a remove and an add."""
        source = self._sources[table]
        if isinstance(change, Edit) and source.key(change.node.row) != source.key(change.old_node.row):
            source.push(remove(change.old_node.row))
            source.push(add(change.node.row))
        else:
            source.push(change)

    def settle(self) -> list[QueryRows]:
        """The queries whose rows were touched by pushes since the last call, without those in `Engine.failed`."""
        touched = list(self._touched)
        self._touched.clear()
        if not self.engine.failed:
            return touched
        failed = {pipeline.rows for pipeline in self.engine.failed}
        return [rows for rows in touched if rows not in failed]

    def move_to(self, connection: sqlite3.Connection) -> None:
        """Read through a connection whose snapshot has exactly the changes pushed so far."""
        self._connection = connection
        for store in self.stores.values():
            store.advance(connection)
