"""Runs mutators on the client: synchronously, whether they are plain functions or coroutine functions.

An application's server declares mutators as coroutine functions, because a database makes them wait. The same
functions work here, because writes to a local transaction never suspend: `await tx.update(…)` returns immediately.
What the server checks (`Mutators.run`: names, arguments, pydantic models) is also checked here, before anything is
queued.
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
    """Mutators declared for an application's server (`app_server.Mutators`); their `ctx` is None here."""

    @property
    def names(self) -> Sequence[str]: ...

    def run(self, name: str, argument: object, tx: object, ctx: object = None) -> Coroutine[Any, Any, None]: ...


AnyMutators: TypeAlias = Mapping[str, Mutator] | DeclaredMutators


def by_name(mutators: AnyMutators | None) -> dict[str, Mutator]:
    """The mutators by name, each as a function of a transaction and the arguments."""
    if mutators is None:
        return {}
    if isinstance(mutators, Mapping):
        return dict(mutators)
    return {name: partial(_declared, mutators, name) for name in mutators.names}


def _declared(mutators: DeclaredMutators, name: str, tx: Transaction, args: Any) -> Any:
    return mutators.run(name, args, tx)


def run_now(name: str, mutator: Mutator, tx: Transaction, args: Any) -> Any:
    """Run a mutator and return its result; raises `ClientError` if its coroutine suspends."""
    returned = mutator(tx, args)
    if not inspect.iscoroutine(returned):
        return returned
    try:
        returned.send(None)
    except StopIteration as done:
        return done.value
    returned.close()
    fix = "await nothing but the transaction's own methods; what must wait belongs on the server (ctx is None here)"
    raise ClientError("mutator-waits", "the mutator waits for something, and a local one must not", name, fix)
