"""One pipeline per distinct query, for any number of subscribers.

Client groups ask for the same queries.  `SharedQueries` stands between them and an `Engine`: equal queries (same normal
form, orderings completed) share one pipeline and one set of rows, and a transaction is evaluated once for all.

    shared = SharedQueries(engine)
    for _ in shared.subscribe(query): ...             # pauses of the hydration, none if somebody else has it already
    shared.rows(query)                                 # what a new subscriber begins with
    for query, patches in shared.advance(changes): ... # one transaction: the net effect on every query it concerns
    shared.push(table, change); shared.settle()        # the same bit by bit, for whoever must not take long
    shared.unsubscribe(query)                          # the last one to leave stops the pipeline

Subscribers see sets: a row is in a query's set while the pipeline references it at least once, however often.  Patches
are net: a row that came and went within a transaction is not mentioned, nor one that ended as it began.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import count

from protocol.sync.ast import Query
from protocol.sync.normal_form import normalize
from reference_cache.zql.engine.engine import Engine, EngineError
from reference_cache.zql.engine.row_changes import RowChange
from reference_cache.zql.engine.row_set import RowId, RowSet
from reference_cache.zql.ivm.change import Pause, SourceChange
from reference_cache.zql.ivm.store import KeyExtractors
from reference_cache.zql.ordering import KeyOf, complete_query
from reference_cache.zql.query.check import check
from reference_cache.zql.query.simplify import simplify
from reference_cache.zql.schema import Row


class RowPatch:
    """A row of a query's set is new or has new values; or (`row` is None) it left the set. `before` is what it was."""

    __slots__ = ("before", "key", "row", "table")

    def __init__(self, table: str, key: object, row: Row | None, before: Row | None = None) -> None:
        self.table = table
        self.key = key
        self.row = row
        self.before = before

    def __repr__(self) -> str:
        return f"RowPatch({self.table!r}, {self.key!r}, {self.row!r})"


class SharedQuery:
    """The rows of one query.

    Invariant: `held` has exactly the rows that the pipeline references; `before` has, for each row touched since the
    last `patches`, what it was then.
    """

    __slots__ = ("before", "held", "hydration", "id", "query", "subscribers")

    def __init__(self, query: Query, query_id: str) -> None:
        self.query = query
        self.id = query_id
        self.subscribers = 0
        self.hydration: Iterator[Pause] = iter(())
        self.held = RowSet()
        self.before: dict[RowId, Row | None] = {}

    def note(self, change: RowChange, row_id: RowId) -> None:
        """Count one reference more or less, or take new values."""
        held = self.held
        if row_id not in self.before:
            self.before[row_id] = held.get(row_id)
        if change.op == "add":
            held.add(row_id, change.row)
        elif change.op == "remove":
            held.remove(row_id)
        else:
            held.replace(row_id, change.row)

    def forget(self) -> None:
        """Drop all references, to be counted anew."""
        for row_id, row in self.held.items():
            self.before.setdefault(row_id, row)
        self.held.clear()

    def patches(self) -> Iterator[RowPatch]:
        """The net effect since the last call. To be read before anything else is noted."""
        touched, self.before = self.before, {}
        for row_id, old in touched.items():
            new = self.held.get(row_id)
            if old != new:
                yield RowPatch(*row_id, new, old)


class TooManyRows(Exception):
    """A query has more rows than one may have."""

    code = "query-too-large"


_ids = count(1)
"""Query ids, unique among all engines of the process, so that one may adopt another's query."""


class SharedQueries:
    """The queries of all subscribers. Invariant: the engine runs exactly the queries that have a subscriber.

    `most_rows` is how many references to rows a query may have when it is hydrated; beyond, `TooManyRows` is raised.
    """

    def __init__(self, engine: Engine, most_rows: int | None = None) -> None:
        self._engine = engine
        self._most_rows = sys.maxsize if most_rows is None else most_rows
        self._by_query: dict[Query, SharedQuery] = {}
        self._by_id: dict[str, SharedQuery] = {}
        self._keys: dict[str, KeyOf] = {}
        self._touched: dict[str, SharedQuery] = {}
        self.failed: dict[SharedQuery, Exception] = {}  # stopped by a change; the caller empties it
        self._last: tuple[Query, Query] | None = None

    def __len__(self) -> int:
        return len(self._by_query)

    def subscribe(self, query: Query) -> Iterator[Pause]:
        """Count one subscriber more. Read to the end before changes are pushed: whoever comes first hydrates."""
        shared = self._by_query.get(key := self.identity(query))
        if shared is None:
            shared = SharedQuery(key, str(next(_ids)))
            shared.hydration = self._hydrate(shared, self._engine.add_query(shared.id, shared.query))
            self._by_query[key] = self._by_id[shared.id] = shared
        shared.subscribers += 1
        return shared.hydration

    def _hydrate(self, shared: SharedQuery, changes: Iterator[RowChange | Pause]) -> Iterator[Pause]:
        hold, row_id, most_rows = shared.held.add, self._row_id, self._most_rows
        for number, change in enumerate(changes):
            if isinstance(change, RowChange):
                if number >= most_rows:
                    raise TooManyRows(f"more than {most_rows} rows, counted as often as they are reached")
                hold(row_id(change), change.row)
            else:
                yield change

    def adopt(self, query: Query, other: SharedQueries) -> SharedQuery:
        """Take over a query that others hydrated, at the same version of the data; its set, or the one that is here."""
        key = self.identity(query)
        known = self._by_query.get(key)
        if known is not None:
            other.unsubscribe(query)
            known.subscribers += 1
            return known
        shared = other._by_query.pop(key)
        del other._by_id[shared.id]
        self._engine.adopt(shared.id, other._engine)
        self._by_query[key] = self._by_id[shared.id] = shared
        return shared

    def unsubscribe(self, query: Query) -> None:
        """Count one subscriber less; the last one's call stops the pipeline."""
        shared = self.find(query)
        shared.subscribers -= 1
        if not shared.subscribers:
            del self._by_query[shared.query], self._by_id[shared.id]
            self._engine.remove_query(shared.id)

    def rows(self, query: Query) -> list[RowPatch]:
        """The whole set of a subscribed query, as patches."""
        return [RowPatch(*row_id, row) for row_id, row in self.find(query).held.items()]

    def advance(self, changes: Iterable[tuple[str, SourceChange]]) -> list[tuple[Query, list[RowPatch]]]:
        """Push one transaction (table and change, in order); the queries whose sets it changed, each with how."""
        for table, change in changes:
            self.push(table, change)
        found = [(shared.query, list(shared.patches())) for shared in self.settle()]
        return [(query, patches) for query, patches in found if patches]

    def push(self, table: str, change: SourceChange) -> None:
        """Push one change of a transaction; sets are right again after `settle`."""
        for row_change in self._engine.push(table, change):
            shared = self._touched[row_change.query_id] = self._by_id[row_change.query_id]
            try:
                shared.note(row_change, self._row_id(row_change))
            except KeyError:
                # Possible where a client gives a relationship and an EXISTS the same alias, as nobody does by accident.
                self._engine.fail(row_change.query_id, EngineError("a row left the query that was not in it"))

    def settle(self) -> list[SharedQuery]:
        """End the transaction: the queries whose sets it touched; each has its `patches`, if it was changed at all.

        Queries that could not take a change have no subscribers any more and are in `failed`.
        """
        for query_id in list(self._engine.stale):
            self._touched[query_id] = self._start_anew(self._by_id[query_id])
        for query_id, error in self._engine.failed.items():
            self._touched.pop(query_id, None)
            shared = self._by_id.pop(query_id)
            del self._by_query[shared.query]
            self.failed[shared] = error
        self._engine.failed.clear()
        self._engine.flush()
        touched, self._touched = self._touched, {}
        return list(touched.values())

    def _start_anew(self, shared: SharedQuery) -> SharedQuery:
        """Hydrate a query again whose scalar subquery has another value now."""
        self._engine.remove_query(shared.id)
        shared.forget()
        for change in self._engine.add_query(shared.id, shared.query):
            if isinstance(change, RowChange):
                shared.note(change, self._row_id(change))
        return shared

    def identity(self, query: Query) -> Query:
        """The form that is the same for all queries that mean the same; raises if the query cannot be asked."""
        if self._last is not None and self._last[0] is query:  # whoever starts a query asks several times
            return self._last[1]
        check(query, self._engine.schema)
        found = normalize(simplify(complete_query(query, self._engine.schema)))
        self._last = query, found
        return found

    def find(self, query: Query) -> SharedQuery:
        """The set of a subscribed query, to be read only."""
        shared = self._by_query.get(self.identity(query))
        if shared is None:
            raise EngineError(f"nobody has subscribed to this query on {query.table!r}")
        return shared

    def _row_id(self, change: RowChange) -> RowId:
        key_of = self._keys.get(change.table)
        if key_of is None:
            table = self._engine.schema.tables[change.table]
            key_of = self._keys[change.table] = KeyExtractors(table)[table.primary_key]
        return change.table, key_of(change.row)
