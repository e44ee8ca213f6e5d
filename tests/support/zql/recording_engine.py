"""An engine whose queries report row changes as a list, in the order in which their pipelines emit them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from protocol.sync.ast import Query
from reference_cache.zql.engine.engine import Engine, Pipeline
from reference_cache.zql.ivm.change import Pause, SourceChange
from reference_cache.zql.schema import Row


class RowChange(NamedTuple):
    """One row of one query was referenced once more, once less, or has new values (`row`; for a remove the last)."""

    query_id: str
    op: Literal["add", "remove", "edit"]
    table: str
    row: Row


class RowLog:
    """A `RowReceiver` that appends to a list."""

    def __init__(self, query_id: str, log: list[RowChange]) -> None:
        self.query_id = query_id
        self._log = log

    def hydrated(self, table: str, row: Row) -> None:
        self._log.append(RowChange(self.query_id, "add", table, row))

    added = hydrated

    def removed(self, table: str, row: Row) -> None:
        self._log.append(RowChange(self.query_id, "remove", table, row))

    def edited(self, table: str, row: Row) -> None:
        self._log.append(RowChange(self.query_id, "edit", table, row))


class RecordingEngine(Engine):
    """Queries have names here: `start`, `change` and `stop` instead of `add_query`, `push` and `remove_query`."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._log: list[RowChange] = []
        self._named: dict[str, Pipeline[RowLog]] = {}

    def start(self, query_id: str, query: Query) -> Iterator[RowChange | Pause]:
        """Start a query; its rows as adds, and the pauses of its hydration. Read it to the end."""
        self._named[query_id] = pipeline = self.add_query(query, RowLog(query_id, self._log))
        return self._hydrate(pipeline)

    def _hydrate(self, pipeline: Pipeline[RowLog]) -> Iterator[RowChange | Pause]:
        for pause in pipeline.hydrate():
            yield from self._drained()
            yield pause
        yield from self._drained()

    def rows(self, query_id: str, query: Query) -> list[RowChange]:
        """Start a query; its rows as adds."""
        return [change for change in self.start(query_id, query) if isinstance(change, RowChange)]

    def change(self, table: str, change: SourceChange) -> list[RowChange]:
        """Push a change; the row changes of all queries, in the order of their emission."""
        self.push(table, change)
        return self._drained()

    def stop(self, query_id: str) -> None:
        self.remove_query(self._named.pop(query_id))

    def _drained(self) -> list[RowChange]:
        changes = self._log[:]
        self._log.clear()
        return changes
