"""A connected client: its socket and its cookie. Its calls are carried out by its client group."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from protocol.sync.errors import SyncError
from protocol.sync.messages import Inspection, QueryPatch
from reference_cache.credentials import Credentials
from reference_cache.view_syncer.api import ClientInfo, Downstream, InspectorAnswer, Outgoing
from reference_cache.view_syncer.cvr.owner import Proof

if TYPE_CHECKING:
    from reference_cache.view_syncer.client_group import ClientGroup

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that must not be left half done: if the caller is cancelled, the work continues."""
    return await asyncio.shield(asyncio.ensure_future(work))


class ClientConnection:
    """One client's connection. Invariant: while it is one of `ClientGroup.clients`, `cookie` is the group's version
    between two pokes; after `close` or `fail` nothing is sent.

    Used on the event loop only.
    """

    def __init__(self, client: ClientInfo, proof: Proof, group: ClientGroup, downstream: Downstream) -> None:
        self.client_id = client.client_id
        self.group = group
        # What the client presented last; `ClientGroup.change_credentials` replaces the three under the group's lock.
        self.credentials = client.credentials
        self.auth_data = client.auth_data
        self.proof = proof
        # The version that the client is at; moved on by `poke`.
        self.cookie = client.base_cookie
        # The clients that its first message declared as deleted; set once, by `ClientGroup.connect`.
        self.deleted_clients: Sequence[str] = ()
        # None once nothing more is to be sent.
        self._downstream: Downstream | None = downstream

    @property
    def open(self) -> bool:
        return self._downstream is not None

    @property
    def is_there(self) -> bool:
        """Whether the socket may still be open: it may be closed before `close` is called."""
        return self._downstream is not None and self._downstream.is_open

    def send(self, outgoing: Outgoing) -> None:
        """Send frames that do not change the client's cookie."""
        if self._downstream is not None:
            self._downstream.send(outgoing)

    def poke(self, outgoing: Outgoing, cookie: str) -> None:
        """Send a poke that takes the client to a cookie."""
        self.send(outgoing)
        self.cookie = cookie

    def fail(self, error: SyncError) -> None:
        """Send the error and disconnect the client."""
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

    async def inspect(self, question: Inspection) -> InspectorAnswer:
        return await to_the_end(self.group.inspect(self, question))

    async def close(self) -> None:
        self.leave()
        self.group.disconnect(self)
