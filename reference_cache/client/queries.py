"""The desired queries of a client, and the `desiredQueriesPatch` that brings a server up to date. Pure.

A query is sent as an AST, or as a name that the application's query endpoint knows; in both cases the client also runs
it locally, on its own rows. Server and client identify it by the same hash. A query stays desired until every view
that needs it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from protocol.sync.ast_json import to_json
from protocol.sync.normal_form import normalize
from reference_cache.zql.query.builder import QueryBuilder
from reference_cache.zql.query.names import NameMap
from reference_cache.zql.query.query_id import named_query_id, query_id
from reference_cache.zql.schema import Schema

Operation: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query that the application's server defines; `query` is what the client runs locally."""

    name: str
    args: Sequence[Any]
    query: QueryBuilder


AnyQuery: TypeAlias = QueryBuilder | NamedQuery


def named_query(name: str, make: Callable[..., QueryBuilder]) -> Callable[..., NamedQuery]:
    """A function that makes the named query from its argument, if it takes one: `by_owner({"owner": "u1"})`."""

    def with_args(*args: Any) -> NamedQuery:
        return NamedQuery(name, args, make(*args))

    return with_args


@dataclass(slots=True)
class DesiredQuery:
    """The `put` of a query in a `desiredQueriesPatch`, and the number of views that need it."""

    operation: Operation
    views: int = 0


class DesiredQueries:
    """The queries of all open views. Invariant: each has at least one view."""

    def __init__(self, schema: Schema) -> None:
        self._names = NameMap.to_server(schema)
        # By query hash; written by `add` and `remove`.
        self._queries: dict[str, DesiredQuery] = {}

    def add(self, query: AnyQuery, ttl: float | None) -> str:
        """Count one more view of a query; returns its hash. `ttl` in milliseconds; the longest one counts.

        A longer `ttl` of a query that the server already has is not sent: only a `put` carries it.
        """
        operation = self._operation(query)
        desired = self._queries.setdefault(operation["hash"], DesiredQuery(operation))
        desired.views += 1
        if ttl is not None:
            desired.operation["ttl"] = max(ttl, desired.operation.get("ttl", ttl))
        return str(operation["hash"])

    def remove(self, hash: str) -> None:
        """Count one view less."""
        self._queries[hash].views -= 1
        if not self._queries[hash].views:
            del self._queries[hash]

    def difference(self, sent: set[str]) -> list[Operation]:
        """The patch for a server that has these desired queries."""
        puts = [desired.operation for hash, desired in self._queries.items() if hash not in sent]
        return puts + [{"op": "del", "hash": hash} for hash in sorted(sent - self._queries.keys())]

    @property
    def hashes(self) -> set[str]:
        return set(self._queries)

    def _operation(self, query: AnyQuery) -> Operation:
        if isinstance(query, NamedQuery):
            args = list(query.args)
            return {"op": "put", "hash": named_query_id(query.name, args), "name": query.name, "args": args}
        ast = normalize(query.ast)
        return {"op": "put", "hash": query_id(query.ast), "ast": to_json(self._names.query(ast))}


def local_query(query: AnyQuery) -> QueryBuilder:
    """The query that the client evaluates on its own rows."""
    return query.query if isinstance(query, NamedQuery) else query
