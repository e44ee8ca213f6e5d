"""Processes a push: each mutation and its confirmation in one transaction. Pure, except for the store.

A mutation's transaction first takes the client's next mutation id. A mutation below it was processed before and is
skipped; one above it stops the request, because earlier mutations are missing. If the mutator raises, its transaction
is rolled back, and a second transaction confirms the mutation with the error as its result: a refusal must not block
the client's queue. If that fails too, or the store executes no transactions, the rest of the request is not processed
and the client pushes it again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from protocol.sync.app_server import CLEANUP
from reference_cache.app_server.errors import AlreadyProcessed, OutOfOrder, StoreUnavailable
from reference_cache.app_server.mutators import Mutators
from reference_cache.app_server.requests import BadRequest, MutationRequest, PushRequest, parse_clean_up
from reference_cache.app_server.stores.store import ClientKey, Store, StoreTransaction
from reference_cache.app_server.transform import client_error
from service_kit.logs import event, logger, unexpected

log = logger("cache.app_server")

PUSH_VERSION = 1
ATTEMPTS = 4
"""How often a mutator runs at most if its transaction fails for a transient reason, such as a deadlock."""

Tx = TypeVar("Tx")


@dataclass(frozen=True, slots=True)
class PushProcessor(Generic[Tx]):
    """Runs an application's mutators in transactions of a store."""

    mutators: Mutators
    store: Store[Tx]

    async def process(self, push: PushRequest, schema: str, ctx: object) -> dict[str, Any]:
        """The response to a push, without `userID`. `schema` is that of the cache's own tables (`zero_0`)."""
        ids = [each.wire_id for each in push.mutations]
        if push.push_version != PUSH_VERSION:
            message = f"Unsupported push version: {push.push_version}"
            return push_failed("unsupportedPushVersion", message, ids)
        results: list[dict[str, Any]] = []
        for number, mutation in enumerate(push.mutations):
            one = _Mutation(self, mutation, ClientKey(schema, push.client_group_id, mutation.client_id), ctx)
            try:
                if mutation.name == CLEANUP:
                    await one.clean_up()
                else:
                    results.append({"id": mutation.wire_id, "result": await one.result()})
            except OutOfOrder as error:
                return push_failed("oooMutation", str(error), ids[number:])
            except StoreUnavailable as error:
                message = unexpected(log, "push failed", error, mutation=mutation.name)
                return push_failed("database", message, ids[number:])
        return {"kind": "MutateResponse", "mutations": results}


def push_failed(reason: str, message: str, ids: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The response for mutations that were not processed."""
    return {
        "kind": "PushFailed",
        "origin": "server",
        "reason": reason,
        "message": message,
        "mutationIDs": list(ids),
    }


@dataclass(frozen=True, slots=True)
class _Mutation(Generic[Tx]):
    """One mutation of a push."""

    processor: PushProcessor[Tx]
    request: MutationRequest
    client: ClientKey
    ctx: object

    async def result(self) -> dict[str, Any]:
        """Process the mutation; returns its result as responses contain it."""
        try:
            refusal = await self._refusal()
            if refusal is None:
                return {}
            return await self._confirm_refused(refusal)
        except AlreadyProcessed as error:
            event(log, logging.INFO, "mutation was processed before", mutation=self.request.name, why=str(error))
            return {"error": "alreadyProcessed", "details": str(error)}

    async def clean_up(self) -> None:
        """Delete acknowledged results. A failure is logged only: undeleted results cost some space."""
        try:
            clean_up = parse_clean_up(self.request)
            if clean_up.client_group_id != self.client.group_id:
                raise BadRequest("the results are of another client group than the push")
            async with self.processor.store.transaction(self.client) as transaction:
                await transaction.delete_results(clean_up)
        except (BadRequest, StoreUnavailable) as error:
            event(log, logging.WARNING, "results were not cleaned up", error=str(error))

    async def _refusal(self) -> Exception | None:
        """Run the mutator and commit; returns None, or the exception that refuses the mutation."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self.processor.store.transaction(self.client) as transaction:
                    await self._take_id(transaction)
                    argument = self.request.args[0] if self.request.args else None
                    await self.processor.mutators.run(self.request.name, argument, transaction.tx, self.ctx)
                return None
            except (OutOfOrder, AlreadyProcessed, StoreUnavailable):
                raise
            except Exception as error:
                if attempt == ATTEMPTS or not self.processor.store.is_transient(error):
                    return error
        raise AssertionError("the last attempt returns or raises")

    async def _confirm_refused(self, refusal: Exception) -> dict[str, Any]:
        event(log, logging.WARNING, "mutation refused", mutation=self.request.name, error=repr(refusal))
        result = {"error": "app", **client_error(refusal, mutation=self.request.name)}
        try:
            async with self.processor.store.transaction(self.client) as transaction:
                await self._take_id(transaction)
                await transaction.record_result(self.request.id, result)
        except (OutOfOrder, AlreadyProcessed, StoreUnavailable):
            raise
        except Exception as error:
            raise StoreUnavailable(f"the result of a mutation could not be recorded: {error}") from error
        return result

    async def _take_id(self, transaction: StoreTransaction[Tx]) -> None:
        expected = await transaction.next_mutation_id()
        received = self.request.id
        if received < expected:
            raise AlreadyProcessed(self.client.client_id, received, expected)
        if received > expected:
            raise OutOfOrder(self.client.client_id, received, expected)
