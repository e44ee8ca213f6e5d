"""The application's custom mutators.

A handler runs inside one transaction of the store (`tx`), together with the confirmation of its mutation. If it raises,
the transaction is rolled back, and the client gets the error and undoes its optimistic write. It may run more than once
for a mutation whose transaction did not commit, so its effects outside of the store must be repeatable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference_cache.app_server.handler import Function, Handlers


class Mutators:
    """The application's mutators by name. Handlers may take `tx`, `args` and `ctx`; their result is ignored."""

    def __init__(self) -> None:
        self._handlers = Handlers("mutator", frozenset({"tx", "ctx"}))

    def define(self, name: str, *, args: Any = None) -> Callable[[Function], Function]:
        """Declare the decorated function as the mutator of this name; `args` overrides the annotation of its `args`."""
        return self._handlers.declare(name, args)

    @property
    def names(self) -> tuple[str, ...]:
        return self._handlers.names

    async def run(self, name: str, argument: object, tx: object, ctx: object = None) -> None:
        """Run a mutator; raises `ApplicationError`, or what the handler raises."""
        await self._handlers.get(name)(argument, tx=tx, ctx=ctx)
