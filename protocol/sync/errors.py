"""The errors a sync server sends to its clients: `["error", {kind, message, origin, …}]`.

What a client does next depends on the kind (reload, request credentials, back off, stop), and only if `origin` is
there; so every error of ours has both. `SyncError` is raised where the fault is detected, and the connection of the
client that it concerns sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

from protocol import values

Origin = Literal["zeroCache", "server"]


OVERLOADED_BACKOFF_MS = 10_000
"""How long a client waits at least before it comes back to a server that was overloaded."""


class ErrorKind(StrEnum):
    """Every kind the official client 1.9.0 knows."""

    AUTH_INVALIDATED = "AuthInvalidated"
    CLIENT_NOT_FOUND = "ClientNotFound"
    INTERNAL = "Internal"
    INVALID_CONNECTION_REQUEST = "InvalidConnectionRequest"
    INVALID_BASE_COOKIE = "InvalidConnectionRequestBaseCookie"
    INVALID_LAST_MUTATION_ID = "InvalidConnectionRequestLastMutationID"
    CLIENT_DELETED = "InvalidConnectionRequestClientDeleted"
    INVALID_MESSAGE = "InvalidMessage"
    INVALID_PUSH = "InvalidPush"
    MUTATION_FAILED = "MutationFailed"
    MUTATION_RATE_LIMITED = "MutationRateLimited"
    PUSH_FAILED = "PushFailed"
    REBALANCE = "Rebalance"
    REHOME = "Rehome"
    SCHEMA_VERSION_NOT_SUPPORTED = "SchemaVersionNotSupported"
    SERVER_OVERLOADED = "ServerOverloaded"
    TRANSFORM_FAILED = "TransformFailed"
    UNAUTHORIZED = "Unauthorized"
    VERSION_NOT_SUPPORTED = "VersionNotSupported"


class SyncError(Exception):
    """A fault as it is sent to the client. Invariant: `body` has kind, message and origin."""

    def __init__(self, kind: ErrorKind, message: str, *, origin: Origin = "zeroCache", **details: Any) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message
        self.origin: Origin = origin
        self.details: Mapping[str, Any] = details

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"

    @property
    def body(self) -> dict[str, Any]:
        """The body of the error message."""
        return {"kind": str(self.kind), "message": self.message, "origin": self.origin, **self.details}

    @property
    def frame(self) -> bytes:
        """The error message as JSON text."""
        return values.dumps(["error", self.body])

    @property
    def refuses_credentials(self) -> bool:
        """Whether the client should get new credentials, rather than give up."""
        if self.kind in (ErrorKind.UNAUTHORIZED, ErrorKind.AUTH_INVALIDATED):
            return True
        failed = self.kind in (ErrorKind.PUSH_FAILED, ErrorKind.TRANSFORM_FAILED)
        return failed and self.details.get("reason") == "http" and self.details.get("status") in (401, 403)


def unauthorized(message: str) -> SyncError:
    return SyncError(ErrorKind.UNAUTHORIZED, message)


def overloaded(message: str) -> SyncError:
    """The server has no room for what the client sent: the client closes, waits, and sends it again."""
    return SyncError(ErrorKind.SERVER_OVERLOADED, message, minBackoffMs=OVERLOADED_BACKOFF_MS)


def transform_failed(reason: str, message: str, query_ids: Sequence[str], **details: Any) -> SyncError:
    """The application's query endpoint did not do its part, for these queries."""
    return SyncError(ErrorKind.TRANSFORM_FAILED, message, reason=reason, queryIDs=list(query_ids), **details)


def push_failed(
    reason: str,
    message: str,
    mutation_ids: Sequence[Mapping[str, Any]],
    *,
    origin: Origin = "zeroCache",
    **details: Any,
) -> SyncError:
    """The application's mutate endpoint did not do its part, for these mutations."""
    ids = [dict(each) for each in mutation_ids]
    return SyncError(ErrorKind.PUSH_FAILED, message, origin=origin, reason=reason, mutationIDs=ids, **details)
