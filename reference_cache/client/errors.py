"""What can go wrong for a program that uses the client, each with what to do next."""

from __future__ import annotations

from typing import Any

from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.errors import CacheError


class ClientError(CacheError):
    """A call that cannot be done, or a local store that cannot be used."""


class MutationRefused(ClientError):
    """The application said no to a mutation; what it had changed here has been taken back."""

    def __init__(self, name: str, result: dict[str, Any]) -> None:
        said = result.get("message") or f"the server answered {result.get('error')}"
        super().__init__("mutation-refused", str(said), name, "correct the arguments, and call the mutator again")
        self.result = result
        self.details = result.get("details")


class MutationUnsettled(ClientError):
    """The application could not be asked about a mutation, which stays queued; its outcome comes later."""

    def __init__(self, name: str, error: SyncError) -> None:
        fix = "repair the mutate endpoint, then call connect(); the mutation is pushed again"
        super().__init__("mutation-unsettled", str(error), name, fix)
        self.error = error


class MutationLost(ClientError):
    """The server has forgotten this client, so it cannot be known whether a mutation was done."""

    def __init__(self, name: str) -> None:
        message = "the server has forgotten this client; whether the mutation was done cannot be known"
        super().__init__("mutation-lost", message, name, "look at the data, and call the mutator again if need be")


class QueryRefused(ClientError):
    """The application does not know a named query, or refused its arguments."""

    def __init__(self, name: str, message: str, details: Any = None) -> None:
        super().__init__("query-refused", message, name, "define the query at the application's query endpoint")
        self.details = details


class Disconnected(ClientError):
    """The connection ended for good while somebody waited for it; `error` is what the cache said."""

    def __init__(self, error: SyncError | None) -> None:
        message = "the client was closed" if error is None else str(error)
        super().__init__("disconnected", message, fix="repair the cause, then call connect()")
        self.error = error

    @property
    def kind(self) -> ErrorKind | None:
        """The kind of the cache's error, if there was one."""
        return None if self.error is None else self.error.kind
