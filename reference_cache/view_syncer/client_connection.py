"""A connected client: its socket, its position, and its calls handed to the group, one by one and to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from protocol.sync.errors import SyncError
from protocol.sync.messages import Inspection, QueryPatch
from reference_cache.view_syncer.api import ClientInfo, Credentials, Downstream, Outgoing
from reference_cache.view_syncer.cvr.owner import Proof

if TYPE_CHECKING:
    from reference_cache.view_syncer.client_group import ClientGroup

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do work that must not be left half done: if the caller is cancelled, it goes on without it."""
    return await asyncio.shield(asyncio.ensure_future(work))


class ClientConnection:
    """One client's connection. Invariant: while it is one of the group's, `cookie` is the group's version between two
    pokes; after `close` or a failure nothing is sent."""

    def __init__(self, client: ClientInfo, proof: Proof, group: ClientGroup, downstream: Downstream) -> None:
        self.client_id = client.client_id
        self.credentials = client.credentials
        self.auth_data = client.auth_data
        self.proof = proof  # of the credentials in use; the group replaces it with them
        self.cookie = client.base_cookie
        self.group = group
        self.deleted_clients: Sequence[str] = ()
        self._downstream: Downstream | None = downstream

    @property
    def open(self) -> bool:
        return self._downstream is not None

    @property
    def is_there(self) -> bool:
        """Whether anybody may still listen: its socket may be gone before the group hears of it."""
        return self._downstream is not None and self._downstream.is_open

    def send(self, outgoing: Outgoing) -> None:
        """Send frames that do not change the client's position."""
        if self._downstream is not None:
            self._downstream.send(outgoing)

    def poke(self, outgoing: Outgoing, cookie: str) -> None:
        """Send a poke that ends at a cookie."""
        self.send(outgoing)
        self.cookie = cookie

    def fail(self, error: SyncError) -> None:
        """Tell the client what went wrong, and part."""
        if self._downstream is not None:
            self._downstream.fail(error)
            self._downstream = None

    def leave(self) -> None:
        """Send nothing from now on."""
        self._downstream = None

    async def change_desired_queries(self, patch: Sequence[QueryPatch]) -> None:
        await to_the_end(self.group.change_desired_queries(self, patch))

    async def delete_clients(self, client_ids: Sequence[str]) -> None:
        await to_the_end(self.group.delete_clients(self, client_ids))

    async def update_auth(
        self, credentials: Credentials, auth_data: Mapping[str, Any] | None = None, secret: str | None = None
    ) -> None:
        await to_the_end(self.group.change_credentials(self, credentials, auth_data, secret))

    async def transform_again(self) -> None:
        await to_the_end(self.group.transform_again(self))

    async def inspect(self, question: Inspection) -> Any:
        return await to_the_end(self.group.inspect(self, question))

    async def close(self) -> None:
        self.leave()
        self.group.disconnect(self)
