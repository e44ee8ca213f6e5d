"""The application's named queries.

A handler returns a query built with the schema's client names; `resolve` returns its AST in server names, which caches
expect. `ctx` is what `authenticate` returned for the request, so a handler can restrict a query to what that user may
see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.sync.ast import Query
from reference_cache.app_server.errors import DeclarationError
from reference_cache.app_server.handler import Function, Handlers
from reference_cache.zql.query.builder import QueryBuilder
from reference_cache.zql.query.names import NameMap
from reference_cache.zql.schema import Schema


class NamedQueries:
    """The application's queries by name. Handlers may take `args` and `ctx`, and return a `QueryBuilder`."""

    def __init__(self, schema: Schema) -> None:
        self._to_server = NameMap.to_server(schema)
        self._handlers = Handlers("query", frozenset({"ctx"}))

    def define(self, name: str, *, args: Any = None) -> Callable[[Function], Function]:
        """Declare the decorated function as the query of this name; `args` overrides the annotation of its `args`."""
        return self._handlers.declare(name, args)

    @property
    def names(self) -> tuple[str, ...]:
        return self._handlers.names

    async def resolve(self, name: str, argument: object = None, ctx: object = None) -> Query:
        """The query's AST in server names; raises `ApplicationError`, or what the handler raises."""
        query = await self._handlers.get(name)(argument, ctx=ctx)
        if not isinstance(query, QueryBuilder):
            raise DeclarationError(f"query {name!r} returned {type(query).__name__} instead of a QueryBuilder")
        return self._to_server.query(query.ast)
