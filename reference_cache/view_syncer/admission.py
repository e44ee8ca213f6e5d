"""Whether a client may connect, by its cookie, user and schema; and what its first message changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.sync.errors import ErrorKind, SyncError, unauthorized
from protocol.sync.messages import InitConnection
from protocol.watermark import EMPTY
from reference_cache.view_syncer.api import ClientInfo
from reference_cache.view_syncer.cvr.config import GroupEdit
from reference_cache.view_syncer.cvr.groups import StoredGroup
from reference_cache.view_syncer.cvr.owner import Proof
from reference_cache.view_syncer.cvr.versions import CookieError, check


@dataclass(frozen=True, slots=True)
class GroupAdmission:
    """A client's request to connect."""

    client: ClientInfo
    init: InitConnection
    proof: Proof

    @property
    def names_deleted(self) -> bool:
        """Whether the client names deleted clients, which is to be acknowledged."""
        return self.init.deleted is not None and bool(self.init.deleted.client_ids)

    def check_new(self) -> None:
        """The group is new: raise `SyncError` unless the client has no cookie and sends its schema."""
        self._check_cookie()
        if self.client.base_cookie is not None:
            raise SyncError(ErrorKind.CLIENT_NOT_FOUND, "Client not found")
        if self.init.client_schema is None:
            raise SyncError(
                ErrorKind.INVALID_CONNECTION_REQUEST,
                "The initConnection message for a new client group must include client schema.",
            )

    def check_known(self, stored: StoredGroup, newest: str, *, takes_credentials: bool) -> None:
        """The group exists: raise `SyncError` unless user and schema are its own and the cookie is at most `newest`."""
        self._check_cookie()
        self.check_owner(stored, takes_credentials)
        cookie = self.client.base_cookie
        if cookie is not None and stored.config.version == EMPTY:
            raise SyncError(ErrorKind.CLIENT_NOT_FOUND, "Client not found")
        if cookie is not None and cookie > newest:
            raise SyncError(ErrorKind.INVALID_BASE_COOKIE, f"CVR is at version {newest}")
        schema = self.init.client_schema
        if schema is not None and schema != stored.client_schema:
            raise SyncError(ErrorKind.INVALID_CONNECTION_REQUEST, "Provided schema does not match previous schema")

    def check_owner(self, stored: StoredGroup, takes_credentials: bool) -> None:
        """Raise `SyncError` unless the client proves that it is the group's user."""
        if self.client.user_id != stored.user_id:
            raise unauthorized(
                "Client groups are pinned to a single userID. "
                "Connection userID does not match existing client group userID."
            )
        refusal = stored.owner.refusal(self.proof, takes_credentials)
        if refusal is not None:
            raise refusal

    def _check_cookie(self) -> None:
        if self.client.base_cookie is None:
            return
        try:
            check(self.client.base_cookie)
        except CookieError as error:
            raise SyncError(ErrorKind.INTERNAL, str(error)) from None

    def edit(self, edit: GroupEdit, now: float) -> list[str]:
        """Apply the first message; returns the clients that it declares as deleted."""
        client_id = self.client.client_id
        named = (self.init.deleted.client_ids or []) if self.init.deleted is not None else []
        if client_id in named:
            raise SyncError(ErrorKind.INTERNAL, "cannot delete self")
        active = self.init.active_clients
        deleted = [] if active is None else sorted(edit.config.clients - {*active, client_id})
        deleted += [each for each in named if each not in deleted]
        edit.add_client(client_id)
        edit.apply(client_id, self.init.desired_queries_patch, now)
        edit.remove_clients(deleted, now)
        return deleted
