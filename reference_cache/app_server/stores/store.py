"""What push processing needs of a store: transactions that carry a client's mutation id with the mutator's writes.

The rows written are those of the two tables every consumer follows, `{schema}.clients` and `{schema}.mutations`; they
reach clients through the change source like any other row, so a confirmation arrives with the data it confirms.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from reference_cache.app_server.requests import CleanUp

Tx_co = TypeVar("Tx_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A client of a group, in the schema of a cache's own tables (`zero_0`)."""

    schema: str
    group_id: str
    client_id: str


class StoreTransaction(Protocol[Tx_co]):
    """One transaction on behalf of one client."""

    @property
    def tx(self) -> Tx_co:
        """What the mutator writes through."""

    async def next_mutation_id(self) -> int:
        """Raise the client's last mutation id by one and return it; 1 for a new client."""

    async def record_result(self, mutation_id: int, result: dict[str, Any]) -> None:
        """Keep a result until the client has seen it."""

    async def delete_results(self, wanted: CleanUp) -> None:
        """Forget results that were seen."""


class Store(Protocol[Tx_co]):
    """A store. Several transactions may be asked for at once; it may let them wait for each other."""

    def transaction(self, client: ClientKey) -> AbstractAsyncContextManager[StoreTransaction[Tx_co]]:
        """Commits at the end of the block, undoes everything if the block raises; `StoreUnavailable` if none can be
        begun.
        """

    def is_transient(self, error: Exception) -> bool:
        """Whether the same transaction may well succeed if it is tried again."""
