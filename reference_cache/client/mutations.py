"""The handle of a mutation, and the attribute syntax that makes one: `client.mutate.issue.close({"id": "i1"})`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any

from reference_cache.client.errors import ClientError
from reference_cache.client.store import QueuedMutation
from reference_cache.zql.nearest import unknown


class Mutation:
    """A mutation that has run locally. `await mutation` is `await mutation.server`.

    `client` is done from the start, with the mutator's return value. `server` is done once the client's rows include
    the mutation's effect on the server; it raises `MutationRefused` once the local effect is undone,
    `MutationUnsettled` or `MutationLost`. A mutation that outlives the process is pushed by the next one, where
    nothing awaits it.
    """

    def __init__(self, queued: QueuedMutation, returned: Any) -> None:
        loop = asyncio.get_running_loop()
        self.id = queued.id
        self.name = queued.name
        self.client: asyncio.Future[Any] = loop.create_future()
        self.client.set_result(returned)
        self.server: asyncio.Future[Any] = loop.create_future()
        # Retrieve the exception, so that asyncio does not log "exception was never retrieved" for programs that do not
        # await the outcome.
        self.server.add_done_callback(lambda done: done.cancelled() or done.exception())

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self.server).__await__()

    def settle(self, outcome: Any) -> None:
        """Set the result of `server`, or its exception if `outcome` is a `ClientError`; the first call counts."""
        if self.server.done():
            return
        if isinstance(outcome, ClientError):
            self.server.set_exception(outcome)
        else:
            self.server.set_result(outcome)


Mutate = Callable[[str, Any], Mutation]


class MutatorNames:
    """Mutators by attribute: `names.issue.close(args)` calls the mutator `issue.close`."""

    def __init__(self, mutate: Mutate, known: Iterable[str], prefix: str = "") -> None:
        self._mutate = mutate
        self._known = frozenset(known)
        self._prefix = prefix

    def __getattr__(self, name: str) -> MutatorNames:
        full = f"{self._prefix}{name}"
        if name.startswith("_") or not any(each == full or each.startswith(f"{full}.") for each in self._known):
            raise AttributeError(unknown("mutator", full, self._known))
        return self[name]

    def __getitem__(self, name: str) -> MutatorNames:
        """For names that are not Python identifiers."""
        return MutatorNames(self._mutate, self._known, f"{self._prefix}{name}.")

    def __call__(self, args: Any = None) -> Mutation:
        return self._mutate(self._prefix.removesuffix("."), args)
