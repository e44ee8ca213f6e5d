"""Mutators as the client runs them: to their end, at once, whether they are plain functions or coroutines.

An application's server declares mutators as coroutine functions, because a database makes them wait. The same functions
serve here, since writing to a local transaction never waits: `await tx.update(…)` continues at once. What a server
checks (`Mutators.run`: names, arguments, pydantic models) is then checked here too, before anything is queued.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from reference_cache.client.errors import ClientError
from reference_cache.client.local.transaction import Transaction

Mutator: TypeAlias = Callable[[Transaction, Any], Any]


class DeclaredMutators(Protocol):
    """Mutators declared for an application's server; they get no context here."""

    @property
    def names(self) -> Sequence[str]: ...

    def run(self, name: str, argument: object, tx: object, ctx: object = None) -> Coroutine[Any, Any, None]: ...


AnyMutators: TypeAlias = Mapping[str, Mutator] | DeclaredMutators


def by_name(mutators: AnyMutators | None) -> dict[str, Mutator]:
    """The mutators as functions of a transaction and the arguments."""
    if mutators is None:
        return {}
    if isinstance(mutators, Mapping):
        return dict(mutators)
    return {name: partial(_declared, mutators, name) for name in mutators.names}


def _declared(mutators: DeclaredMutators, name: str, tx: Transaction, args: Any) -> Any:
    return mutators.run(name, args, tx)


def run_now(name: str, mutator: Mutator, tx: Transaction, args: Any) -> Any:
    """Run a mutator to its end; what it returns."""
    made = mutator(tx, args)
    if not inspect.iscoroutine(made):
        return made
    try:
        made.send(None)
    except StopIteration as done:
        return done.value
    made.close()
    fix = "await nothing but the transaction's own methods; what must wait belongs on the server (ctx is None here)"
    raise ClientError("mutator-waits", "the mutator waits for something, and a local one must not", name, fix)
