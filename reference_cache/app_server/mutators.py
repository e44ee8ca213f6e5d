"""Mutators: the writes clients may ask for, by name.

A handler runs inside one transaction of the store (`tx`), together with the confirmation of its mutation. Raising
undoes what it wrote; the client is told why and takes its optimistic version back. It may run more than once for a
mutation whose transaction did not commit, so what it does outside of the store must bear that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference_cache.app_server.handler import Function, Handlers


class Mutators:
    """The application's mutators by name. Handlers may take `tx`, `args` and `ctx`; what they return is not used."""

    def __init__(self) -> None:
        self._handlers = Handlers("mutator", frozenset({"tx", "ctx"}))

    def define(self, name: str, *, args: Any = None) -> Callable[[Function], Function]:
        """Declare the decorated function as the mutator of this name; `args` overrides its annotation."""
        return self._handlers.declare(name, args)

    @property
    def names(self) -> tuple[str, ...]:
        """All declared names."""
        return self._handlers.names

    async def run(self, name: str, argument: object, tx: object, ctx: object = None) -> None:
        """Run a mutator; raises `ApplicationError`, or whatever the handler raises."""
        await self._handlers.get(name)(argument, tx=tx, ctx=ctx)
