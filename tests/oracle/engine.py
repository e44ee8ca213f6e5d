"""The engine under test: a case's tables as sources, its queries both as row changes and as views."""

from __future__ import annotations

from collections import Counter
from typing import Any

from protocol.sync.ast_json import parse
from reference_cache.ivm.change import YIELD, SourceChange, add, edit, remove
from reference_cache.ivm.engine import Engine
from reference_cache.ivm.memory_table import memory_source
from reference_cache.ivm.row_changes import RowChange
from reference_cache.ivm.source import Source
from reference_cache.query.format import Format
from reference_cache.query.schema import Schema, TableSchema
from tests.oracle.changes import Rows
from tests.oracle.check import Counts, row_key
from tests.oracle.worlds import Json


class EngineRun:
    """All queries of a case on one engine, each twice: as row changes, counted, and as a view."""

    def __init__(self, case: Json, rows: Rows) -> None:
        self._schema = Schema.from_json(case["schema"])
        self._rows = rows
        self._engine = Engine(self._schema, self.open_source)
        self._counts: list[Counts] = [Counter() for _ in case["queries"]]
        self._views = []
        for number, query in enumerate(case["queries"]):
            ast = parse(query["ast"])
            for change in self._engine.add_query(str(number), ast):
                if change is not YIELD:
                    self._count(change)
            self._views.append(self._engine.materialize(ast, Format.from_json(query["format"])))

    def open_source(self, table: TableSchema) -> Source:
        return memory_source(table, [table.row(row) for row in self._rows[table.name]])

    def push(self, changes: list[Json]) -> None:
        for change in changes:
            table = self._schema.tables[change["table"]]
            for row_change in self._engine.push(table.name, source_change(table, change)):
                self._count(row_change)
        self._engine.flush()

    def tree(self, query: int) -> Any:
        return self._views[query].result

    def counts(self, query: int) -> Counts:
        return self._counts[query]

    def close(self) -> None:
        """Nothing is held open."""

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
