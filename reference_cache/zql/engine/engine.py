"""The engine: tables in, queries on them, and the row changes each query sees.

    engine = Engine(schema, memory_source)
    for change in engine.add_query("q1", parse(ast)): ...         # hydration: row changes (and pauses)
    for change in engine.push("issue", edit(new, old)): ...       # what one table change means for every query
    view = engine.materialize(parse(ast), format)                 # the same as a tree that stays current
    engine.flush()                                                # transaction complete: views tell their listeners

Queries must be bound and use the schema's names; orderings are completed here and, with a cost model, flips planned.
All queries share one source per table. The engine does no I/O of its own and is used from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from protocol.sync.ast import Query
from reference_cache.zql.engine.build import Host, build
from reference_cache.zql.engine.companion import CompanionWatch
from reference_cache.zql.engine.explanation import Explanation, explain
from reference_cache.zql.engine.row_changes import RowChange, RowChanges
from reference_cache.zql.format import Format
from reference_cache.zql.ivm.change import YIELD, Change, Pause, SourceChange
from reference_cache.zql.ivm.operator import EVERYTHING, Input, first
from reference_cache.zql.ivm.operators.union import UnionFanIn
from reference_cache.zql.ivm.source import Connection, Source
from reference_cache.zql.ivm.view import View
from reference_cache.zql.ordering import complete_query
from reference_cache.zql.planner import planner
from reference_cache.zql.planner.cost import CostModel
from reference_cache.zql.query.check import check
from reference_cache.zql.query.scalar import Companion, resolve_scalars
from reference_cache.zql.schema import Schema, TableSchema

OpenSource = Callable[[TableSchema], Source]


class EngineError(ValueError):
    """A call that names an unknown table or query, or a query that is already there."""

    code = "bad-engine-use"


class LiveQuery:
    """A query's pipeline with its connections, its companions, and what turns their output into row changes."""

    __slots__ = ("companions", "connections", "input", "out", "rows")

    def __init__(
        self,
        query_id: str,
        input: Input,
        connections: list[Connection],
        companions: list[CompanionWatch],
        out: list[RowChange],
    ) -> None:
        self.input = input
        self.connections = connections
        self.companions = companions
        self.rows = RowChanges(query_id, input.schema)
        self.out = out  # where row changes go: its engine's list
        input.set_output(self._push)

    def _push(self, change: Change) -> None:
        self.rows.expand(change, self.out)

    def hydrate(self) -> Iterator[RowChange | Pause]:
        """The query's rows, and then its companions', as adds."""
        for node in self.input.fetch(EVERYTHING):
            if node is YIELD:
                yield node
            else:
                yield from self.rows.adds(node)
        for companion in self.companions:
            yield from companion.rows()

    def destroy(self) -> None:
        """Let go of the sources."""
        self.input.destroy()
        for companion in self.companions:
            companion.destroy()


class Engine:
    """Any number of queries over shared tables.

    Invariant: after each push, the announced rows of every query that is not `stale` are those of a fresh hydration,
    references counted (which of many children stand for an EXISTS is a matter of history).

    `use_scalars` evaluates scalar subqueries once instead of joining them; a query whose scalar then changes is put
    into `stale`, and the caller removes and adds it again. Without it the hint is ignored, which is always right.

    `in_order` is for whoever hears of row changes in turn; without it they come in any order, and reading costs less.
    Views are in order in any case. `checkpoint` is called between the steps of planning; it may pause or raise.

    A query whose pipeline raises while a change is pushed through it is removed and put into `failed`, with the
    exception; the other queries see the change all the same.
    """

    def __init__(
        self,
        schema: Schema,
        open_source: OpenSource,
        *,
        cost_model: CostModel | None = None,
        checkpoint: planner.Checkpoint = bool,
        allow_not_exists: bool = True,
        use_scalars: bool = False,
        in_order: bool = True,
        union: type[UnionFanIn] = UnionFanIn,
    ) -> None:
        self.schema = schema
        self.stale: set[str] = set()
        self.failed: dict[str, Exception] = {}  # written by `push`, emptied by the caller
        self._open_source = open_source
        self._cost_model = cost_model
        self._checkpoint = checkpoint
        self._use_scalars = use_scalars
        self._host = Host(self.source, allow_not_exists=allow_not_exists, union=union)
        self._rows_host = replace(self._host, ordered=in_order)
        self._sources: dict[str, Source] = {}
        self._queries: dict[str, LiveQuery] = {}
        self._views: list[View] = []
        self._out: list[RowChange] = []

    def source(self, table: str) -> Source:
        """The source of a table, opened on first use."""
        source = self._sources.get(table)
        if source is None:
            if table not in self.schema.tables:
                raise EngineError(f"there is no table {table!r}; the schema has {sorted(self.schema.tables)}")
            source = self._sources[table] = self._open_source(self.schema.tables[table])
        return source

    def prepare(self, query: Query) -> Query:
        """The query as it will be built: checked against the schema, orderings complete, flips planned."""
        check(query, self.schema)
        query = complete_query(query, self.schema)
        return query if self._cost_model is None else planner.plan(query, self._cost_model, self._checkpoint)

    def add_query(self, query_id: str, query: Query) -> Iterator[RowChange | Pause]:
        """Start a query; its rows as adds. Read the iterator to its end before pushing changes."""
        if query_id in self._queries:
            raise EngineError(f"there is already a query {query_id!r}; remove it first")
        companions: tuple[Companion, ...] = ()
        if self._use_scalars:
            query, companions = resolve_scalars(query, self.schema, self._first_row)
        watches: list[CompanionWatch] = []
        try:
            for companion in companions:
                watches.append(self._watch(query_id, companion))
            connections: list[Connection] = []
            input = build(self.prepare(query), self._rows_host, connections)
            live = LiveQuery(query_id, input, connections, watches, self._out)
        except BaseException:
            for watch in watches:
                watch.destroy()
            raise
        self._own(query_id, live)
        return live.hydrate()

    def adopt(self, query_id: str, other: Engine) -> None:
        """Take over a hydrated query of another engine. Both are at the same version of the data.

        That engine hydrated the query in its own time, while this one followed changes.
        """
        live = other._queries.pop(query_id)
        for connection in live.connections:
            self.source(connection.schema.table.name).adopt(connection)
        for connection in live.connections:
            connection.place.need_again()
        live.out = self._out
        self._own(query_id, live)

    def _own(self, query_id: str, live: LiveQuery) -> None:
        self._queries[query_id] = live
        for connection in live.connections:
            connection.owner = query_id
            connection.on_failure = partial(self.fail, query_id)

    def fail(self, query_id: str, error: Exception) -> None:
        """Remove a query that cannot go on, and note why."""
        if query_id in self._queries:
            self.remove_query(query_id)
            self.failed[query_id] = error

    def _watch(self, query_id: str, companion: Companion) -> CompanionWatch:
        input = build(self.prepare(companion.query), self._host)
        return CompanionWatch(query_id, companion, input, self._out, lambda: self.stale.add(query_id))

    def _first_row(self, query: Query) -> Mapping[str, Any] | None:
        input = build(self.prepare(query), self._host)
        try:
            node = first(input.fetch(EVERYTHING))
            return None if node is None else input.schema.table.named(node.row)
        finally:
            input.destroy()

    def remove_query(self, query_id: str) -> None:
        """Stop a query; unknown ids are errors."""
        live = self._queries.pop(query_id, None)
        if live is None:
            raise EngineError(f"there is no query {query_id!r}")
        self.stale.discard(query_id)
        live.destroy()

    def materialize(self, query: Query, format: Format) -> View:
        """A hydrated view of a query; give it back with `release`."""
        view = View(build(self.prepare(query), self._host), format)
        for _ in view.hydrate():
            pass
        self._views.append(view)
        return view

    def release(self, view: View) -> None:
        """Stop keeping a view current."""
        self._views.remove(view)
        view.destroy()

    def push(self, table: str, change: SourceChange) -> list[RowChange]:
        """Change a table; the row changes of all queries, in order of emission."""
        out = self._out
        try:
            self.source(table).push(change)
            return out[:]
        finally:
            out.clear()

    def flush(self) -> None:
        """The transaction is complete: views tell their listeners."""
        for view in self._views:
            view.flush()

    def explain(self, query: Query, *, keep_rows: bool = False) -> Explanation:
        """Run a query once, watching every operator; `keep_rows` keeps what it reads."""
        check(query, self.schema)
        query = complete_query(query, self.schema)
        planned = None if self._cost_model is None else planner.explain(query, self._cost_model, self._checkpoint)
        prepared = query if planned is None else planned.query
        return explain(prepared, self._rows_host, planned, keep_rows=keep_rows)
