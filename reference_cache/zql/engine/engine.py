"""The engine: any number of queries over shared tables, and the rows that each query references.

    engine = Engine(schema, memory_source)
    pipeline = engine.add_query(parse(ast), rows)                 # `rows` receives the query's row references
    for pause in pipeline.hydrate(): ...                          # read to the end before changes are pushed
    engine.push("issue", edit(new, old))                          # one table change, through every query it affects
    view = engine.materialize(parse(ast), format)                 # the same as a tree that stays current
    engine.flush()                                                # transaction complete: views call their listeners

Queries must be bound (no static parameters) and use the schema's names. The engine completes their orderings and, if it
has a cost model, plans which EXISTS are flipped. All queries share one source per table. The engine does no I/O of its
own, has no lock, and is used from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Generic, TypeVar

from protocol.sync.ast import Query
from reference_cache.zql.engine.build import Host, build
from reference_cache.zql.engine.explanation import Explanation, explain
from reference_cache.zql.engine.row_references import RowReceiver, RowReferences
from reference_cache.zql.format import Format
from reference_cache.zql.ivm.change import Pause, SourceChange
from reference_cache.zql.ivm.operator import EVERYTHING, Input
from reference_cache.zql.ivm.source import Connection, Source
from reference_cache.zql.ivm.view import View
from reference_cache.zql.ordering import complete_query
from reference_cache.zql.planner import planner
from reference_cache.zql.planner.cost import CostModel
from reference_cache.zql.query.check import check
from reference_cache.zql.schema import Schema, TableSchema

OpenSource = Callable[[TableSchema], Source]

R = TypeVar("R", bound=RowReceiver)
R_co = TypeVar("R_co", bound=RowReceiver, covariant=True)

_ids = count(1)
"""Pipeline ids, unique in the process, because a pipeline may move from one engine to another."""


class EngineError(ValueError):
    """A call that names an unknown table, or a pipeline that is not the engine's."""

    code = "bad-engine-use"


class Pipeline(Generic[R_co]):
    """A running query: its operators, its connections to the sources, and the receiver of its row references.

    `query` is the query as it was added.
    """

    __slots__ = ("_references", "connections", "id", "input", "query", "rows")

    def __init__(self, query: Query, input: Input, connections: list[Connection], rows: R_co) -> None:
        self.id = next(_ids)
        self.query = query
        self.input = input
        self.connections = connections
        self.rows = rows
        self._references = RowReferences(input.schema, rows)
        input.set_output(self._references.push)

    def hydrate(self) -> Iterator[Pause]:
        """Evaluate the query and report its rows; yields where the time slice is used up. Call once."""
        return self._references.hydrate(self.input.fetch(EVERYTHING))


class Engine:
    """Any number of queries over shared tables.

    Invariant: after each push, the references reported for every query are those of a fresh hydration. One exception:
    of many children that make an EXISTS true, only some are referenced, and which ones depends on earlier changes.

    `in_order` reports references in the query's order; without it they come in any order, and reading costs less.
    Views are in order in any case. `checkpoint` is called between the steps of planning; it may pause or raise.

    A query whose pipeline or receiver raises while a change is pushed through it is removed and put into `failed`,
    with the exception; the other queries see the change all the same.
    """

    def __init__(
        self,
        schema: Schema,
        open_source: OpenSource,
        *,
        cost_model: CostModel | None = None,
        checkpoint: planner.Checkpoint = bool,
        in_order: bool = True,
    ) -> None:
        self.schema = schema
        # Pipelines removed by a push, with the reason; the caller empties it.
        self.failed: dict[Pipeline[RowReceiver], Exception] = {}
        self._open_source = open_source
        self._cost_model = cost_model
        self._checkpoint = checkpoint
        self._host = Host(self.source)
        self._rows_host = replace(self._host, ordered=in_order)
        # By table; `source` adds to it and nothing is ever removed.
        self._sources: dict[str, Source] = {}
        # Written by `add_query`, `adopt` and `remove_query`.
        self._pipelines: set[Pipeline[RowReceiver]] = set()
        # Written by `materialize` and `release`.
        self._views: list[View] = []

    def source(self, table: str) -> Source:
        """The source of a table, opened on first use."""
        source = self._sources.get(table)
        if source is None:
            if table not in self.schema.tables:
                raise EngineError(f"there is no table {table!r}; the schema has {sorted(self.schema.tables)}")
            source = self._sources[table] = self._open_source(self.schema.tables[table])
        return source

    def prepare(self, query: Query) -> Query:
        """The query as it is built: orderings completed, flips planned. Raises `AstError` if it does not fit."""
        check(query, self.schema)
        query = complete_query(query, self.schema)
        return query if self._cost_model is None else planner.plan(query, self._cost_model, self._checkpoint)

    def add_query(self, query: Query, rows: R) -> Pipeline[R]:
        """Build a query's pipeline; the caller hydrates it to the end before it pushes changes.

        Raises `BuildError`, `AstError`, and what `checkpoint` raises; nothing is left behind then.
        """
        connections: list[Connection] = []
        input = build(self.prepare(query), self._rows_host, connections)
        pipeline = Pipeline(query, input, connections, rows)
        self._own(pipeline)
        return pipeline

    def adopt(self, pipeline: Pipeline[RowReceiver], other: Engine) -> None:
        """Take over a hydrated pipeline of another engine, which is at the same version of the data.

        For slow queries: the other engine hydrates them while this one continues to push changes.
        """
        other._pipelines.remove(pipeline)
        for connection in pipeline.connections:
            self.source(connection.schema.table.name).adopt(connection)
        for connection in pipeline.connections:
            connection.route.need_again()
        self._own(pipeline)

    def _own(self, pipeline: Pipeline[RowReceiver]) -> None:
        self._pipelines.add(pipeline)
        for connection in pipeline.connections:
            connection.owner = pipeline.id
            connection.on_failure = partial(self._fail, pipeline)

    def _fail(self, pipeline: Pipeline[RowReceiver], error: Exception) -> None:
        if pipeline in self._pipelines:
            self.remove_query(pipeline)
            self.failed[pipeline] = error

    def remove_query(self, pipeline: Pipeline[RowReceiver]) -> None:
        """Destroy a pipeline of this engine."""
        if pipeline not in self._pipelines:
            raise EngineError("the pipeline is not, or no longer, one of this engine")
        self._pipelines.remove(pipeline)
        pipeline.input.destroy()

    def materialize(self, query: Query, format: Format) -> View:
        """A hydrated view of a query, kept current by `push` until `release`."""
        view = View(build(self.prepare(query), self._host), format)
        for _ in view.hydrate():
            pass
        self._views.append(view)
        return view

    def release(self, view: View) -> None:
        """Destroy a view of this engine."""
        self._views.remove(view)
        view.destroy()

    def push(self, table: str, change: SourceChange) -> None:
        """Change a table, and push the change through every query and view it affects."""
        self.source(table).push(change)

    def flush(self) -> None:
        """The transaction is complete: views call their listeners."""
        for view in self._views:
            view.flush()

    def explain(self, query: Query, *, keep_rows: bool = False) -> Explanation:
        """Hydrate a query once, and report what every operator did; `keep_rows` also keeps the rows that it reads."""
        check(query, self.schema)
        query = complete_query(query, self.schema)
        planned = None if self._cost_model is None else planner.explain(query, self._cost_model, self._checkpoint)
        prepared = query if planned is None else planned.query
        return explain(prepared, self._rows_host, planned, keep_rows=keep_rows)
