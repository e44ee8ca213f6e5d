"""The contract between push processing and a store: transactions with the mutator's writes and the confirmation.

A confirmation is a row of `{schema}.clients` or `{schema}.mutations`, the two tables that every cache replicates. It
reaches clients through the change source like any other row, so it arrives with the data it confirms.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from reference_cache.app_server.requests import CleanUp

Tx_co = TypeVar("Tx_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A client of a group; `schema` is that of the cache's own tables (`zero_0`)."""

    schema: str
    group_id: str
    client_id: str


class StoreTransaction(Protocol[Tx_co]):
    """One transaction on behalf of one client."""

    @property
    def tx(self) -> Tx_co:
        """The `tx` of the mutator."""

    async def next_mutation_id(self) -> int:
        """Increment the client's last mutation id and return it; 1 for a new client."""

    async def record_result(self, mutation_id: int, result: dict[str, Any]) -> None:
        """Store a result until the client has acknowledged it."""

    async def delete_results(self, clean_up: CleanUp) -> None:
        """Delete acknowledged results."""


class Store(Protocol[Tx_co]):
    """A store. Callers may open transactions concurrently; the store may serialise them."""

    def transaction(self, client: ClientKey) -> AbstractAsyncContextManager[StoreTransaction[Tx_co]]:
        """Commits at the end of the block, rolls back if it raises; `StoreUnavailable` if it cannot begin."""

    def is_transient(self, error: Exception) -> bool:
        """Whether the same transaction may succeed if it is retried immediately."""
