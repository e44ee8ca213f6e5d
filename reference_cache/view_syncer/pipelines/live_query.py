"""A distinct query that runs for one or more client groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from protocol.sync.ast import Query
from reference_cache.view_syncer.cvr.records import RecordedQuery
from reference_cache.view_syncer.pipelines.digest import Digest
from reference_cache.view_syncer.pipelines.distinct_query import KeyChoice
from reference_cache.view_syncer.pipelines.evaluation import Evaluation
from reference_cache.view_syncer.pipelines.query_rows import QueryRows
from reference_cache.view_syncer.pipelines.row_keys import RowKeys
from reference_cache.zql.engine.engine import Pipeline

if TYPE_CHECKING:
    from reference_cache.view_syncer.client_group import ClientGroup

QueryPipeline: TypeAlias = Pipeline[QueryRows]


class LiveQuery(RecordedQuery):
    """A running query. Invariant: while `Pipelines.lock` is free, its records in the CVR file are exactly its rows, and
    `groups` are the groups whose view it is part of.

    Everything is used on the event loop only. `query` is the query as the first group asked for it; what is evaluated
    is `pipeline.query`.
    """

    __slots__ = ("choice", "evaluation", "groups", "hydration_seconds", "pipeline", "query", "updates", "users")

    def __init__(
        self, key: str, query: Query, choice: KeyChoice, evaluation: Evaluation, pipeline: QueryPipeline
    ) -> None:
        super().__init__(key)
        self.query = query
        self.choice = choice
        # Both replaced when `Pipelines` adopts the query or hydrates it again after a reset, under its lock.
        self.evaluation = evaluation
        self.pipeline = pipeline
        # Written by `GroupView` when it changes its set of queries, under the pipelines' lock.
        self.groups: set[ClientGroup] = set()
        # How often it was opened and not released yet; written by `Pipelines` and `SlowStart` under the lock.
        self.users = 0
        # Set once, by `Pipelines.enter`.
        self.hydration_seconds = 0.0
        # Milliseconds of the steps that changed its rows; made by the first.
        self.updates: Digest | None = None

    @property
    def rows(self) -> QueryRows:
        return self.pipeline.rows

    @property
    def keys(self) -> RowKeys:
        return self.evaluation.keys

    def metrics(self) -> dict[str, Any]:
        """How long it took to hydrate and to follow changes, in milliseconds, as the inspector takes it."""
        updates = Digest() if self.updates is None else self.updates
        return {"query-hydration-server-ms": self.hydration_seconds * 1000, "query-update-server": updates.to_json()}

    def note_update(self, seconds: float) -> None:
        """Note the duration of a step that changed the query's rows."""
        if self.updates is None:
            self.updates = Digest()
        self.updates.add(seconds * 1000)

    def stop(self) -> None:
        """Destroy the pipeline."""
        self.evaluation.engine.remove_query(self.pipeline)
