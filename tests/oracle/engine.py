"""The engine under test: a case's tables as sources, its queries both as row changes and as views."""

from __future__ import annotations

import sqlite3
from collections import Counter
from random import Random
from typing import Any, NamedTuple

from protocol.sync.ast import Query
from protocol.sync.ast_json import parse
from reference_cache.zql.format import Format
from reference_cache.zql.ivm.change import YIELD, SourceChange, add, edit, remove
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.ivm.store import RowStore
from reference_cache.zql.ivm.view import View
from reference_cache.zql.planner.cost_model import SqliteCostModel
from reference_cache.zql.schema import Schema, TableSchema
from reference_cache.zql.tables.followed import FollowedTable
from reference_cache.zql.tables.memory import MemoryTable
from tests.oracle import database
from tests.oracle.cases import present
from tests.oracle.changes import Rows
from tests.oracle.check import Counts, row_key
from tests.oracle.worlds import Json
from tests.support.zql.recording_engine import RecordingEngine, RowChange
from tests.support.zql.written_table import WrittenTable


class Variant(NamedTuple):
    """One way of running a case.

    `planned` lets the planner decide the flips that a query leaves open; `routed` makes sources look readers up even
    if there are few, and put pauses into their streams; `in_order` is the engine's.
    """

    source: str
    planned: bool
    routed: bool
    in_order: bool

    def start(self, case: Json, rows: Rows, done: int) -> EngineRun:
        """The engine with the queries that are there after so many transactions, hydrated."""
        return EngineRun(case, rows, self, done)


VARIANTS = [
    Variant(source, planned, routed, in_order=planned is not routed)
    for source in ("memory", "sqlite", "followed")
    for planned in (False, True)
    for routed in (True, False)
]


class EngineRun:
    """All queries of a case on one engine, each twice: as row changes, counted, and as a view."""

    def __init__(self, case: Json, rows: Rows, variant: Variant, done: int) -> None:
        self.planned = variant.planned
        self._case = case
        self._rows = rows
        self._source = variant.source
        self._routed = variant.routed
        self._done = done
        self._schema = Schema.from_json(case["schema"])
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        database.create(self._database, {**case, "rows": rows})
        self._followed: list[FollowedTable] = []
        model = SqliteCostModel(self._database) if variant.planned else None
        self._engine = RecordingEngine(self._schema, self._open_source, cost_model=model, in_order=variant.in_order)
        self._counts: list[Counts] = [Counter() for _ in case["queries"]]
        self._views: dict[int, View] = {}
        for table in self._schema.tables:
            self._engine.source(table)
        self._come_and_go()

    def _come_and_go(self) -> None:
        for number, query in enumerate(self._case["queries"]):
            if number in self._views and not present(query, self._done):
                self._engine.stop(str(number))
                self._engine.release(self._views.pop(number))
            elif number not in self._views and present(query, self._done):
                self._views[number] = self._add(number, parse(query["ast"]), Format.from_json(query["format"]))

    def _add(self, number: int, query: Query, format_: Format) -> View:
        for change in self._engine.start(str(number), query):
            if change is not YIELD:
                self._count(change)
        return self._engine.materialize(query, format_)

    def _open_source(self, table: TableSchema) -> Source:
        if not self._routed:
            return Source(self._store(table))
        random = Random(table.name)
        return Source(self._store(table), expired=lambda: random.random() < 0.3, few_readers=0)

    def _store(self, table: TableSchema) -> RowStore:
        if self._source == "memory":
            return MemoryTable(table, [table.row(row) for row in self._rows[table.name]])
        if self._source == "sqlite":
            return WrittenTable(self._database, table)
        self._followed.append(FollowedTable(self._database, table))
        return self._followed[-1]

    def push(self, changes: list[Json]) -> None:
        for change in changes:
            table = self._schema.tables[change["table"]]
            for row_change in self._engine.change(table.name, source_change(table, change)):
                self._count(row_change)
        self._engine.flush()
        self._move_on(changes)

    def _move_on(self, changes: list[Json]) -> None:
        """Let the followed tables have what was pushed, as a replicator would."""
        if self._source == "followed":
            for change in changes:
                database.write(self._database, self._case["schema"]["tables"][change["table"]], change)
            for store in self._followed:
                store.advance()
        self._done += 1
        self._come_and_go()

    def tree(self, query: int) -> Any:
        return self._views[query].result

    def counts(self, query: int) -> Counts:
        return self._counts[query]

    def close(self) -> None:
        self._database.close()

    def _count(self, change: RowChange) -> None:
        table = self._schema.tables[change.table]
        key = row_key([change.row[place] for place in table.positions(table.primary_key)])
        self._counts[int(change.query_id)][change.table, key] += {"add": 1, "remove": -1, "edit": 0}[change.op]


def source_change(table: TableSchema, change: Json) -> SourceChange:
    """A change of a case as the engine takes it."""
    row = table.row(change["row"])
    if change["op"] == "edit":
        return edit(row, table.row(change["oldRow"]))
    return add(row) if change["op"] == "add" else remove(row)
