"""Which queries a client wants, and what the server must be told about that. Pure.

A query is wanted ad hoc, by its AST, or by a name the application's query endpoint knows; either way the client also
runs it itself, on its own rows. Server and client know it by the same hash. Wanting counts: a query is wanted until
everyone who asked for it has let go.
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
    """A query under the application's name for it; `query` is what the client makes of it locally."""

    name: str
    args: Sequence[Any]
    query: QueryBuilder


AnyQuery: TypeAlias = QueryBuilder | NamedQuery


def named_query(name: str, make: Callable[..., QueryBuilder]) -> Callable[..., NamedQuery]:
    """A function that gives the named query for its argument, if it takes one: `by_owner({"owner": "u1"})`."""

    def with_args(*args: Any) -> NamedQuery:
        return NamedQuery(name, args, make(*args))

    return with_args


@dataclass(slots=True)
class Wanted:
    """A query someone wants: how to ask for it, and how many want it."""

    operation: Operation
    count: int = 0


class WantedQueries:
    """Everything that is wanted now. Invariant: each has a count of at least one."""

    def __init__(self, schema: Schema) -> None:
        self._names = NameMap.to_server(schema)
        self._wanted: dict[str, Wanted] = {}

    def want(self, query: AnyQuery, ttl: float | None) -> str:
        """Want a query once more; its hash. The longest `ttl` (milliseconds) of the first who asked counts."""
        operation = self._operation(query)
        wanted = self._wanted.setdefault(operation["hash"], Wanted(operation))
        wanted.count += 1
        if ttl is not None:
            wanted.operation["ttl"] = max(ttl, wanted.operation.get("ttl", ttl))
        return str(operation["hash"])

    def let_go(self, hash: str) -> None:
        """Want a query once less."""
        self._wanted[hash].count -= 1
        if not self._wanted[hash].count:
            del self._wanted[hash]

    def difference(self, told: set[str]) -> list[Operation]:
        """What a server must be told that was told to want these."""
        puts = [wanted.operation for hash, wanted in self._wanted.items() if hash not in told]
        return puts + [{"op": "del", "hash": hash} for hash in sorted(told - self._wanted.keys())]

    @property
    def hashes(self) -> set[str]:
        return set(self._wanted)

    def _operation(self, query: AnyQuery) -> Operation:
        if isinstance(query, NamedQuery):
            args = list(query.args)
            return {"op": "put", "hash": named_query_id(query.name, args), "name": query.name, "args": args}
        ast = normalize(query.ast)
        return {"op": "put", "hash": query_id(query.ast), "ast": to_json(self._names.query(ast))}


def local_query(query: AnyQuery) -> QueryBuilder:
    """What the client evaluates for a query."""
    return query.query if isinstance(query, NamedQuery) else query
