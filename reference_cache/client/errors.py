"""The exceptions of the client; each carries a code and a fix."""

from __future__ import annotations

from typing import Any

from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.errors import CacheError


class ClientError(CacheError):
    """An invalid call, or a local store that cannot be used."""


class MutationRefused(ClientError):
    """The application refused a mutation; its local effect has been undone. `result` is the server's answer."""

    def __init__(self, name: str, result: dict[str, Any]) -> None:
        message = result.get("message") or f"the server answered {result.get('error')}"
        super().__init__("mutation-refused", str(message), name, "correct the arguments, and call the mutator again")
        self.result = result
        self.details = result.get("details")


class MutationUnsettled(ClientError):
    """The cache could not push a mutation to the application. It stays queued and is pushed again later."""

    def __init__(self, name: str, error: SyncError) -> None:
        fix = "repair the mutate endpoint, then call connect(); the mutation is pushed again"
        super().__init__("mutation-unsettled", str(error), name, fix)
        self.error = error


class MutationLost(ClientError):
    """The server no longer knows this client, so whether the mutation was executed is unknown."""

    def __init__(self, name: str) -> None:
        message = "the server no longer knows this client; whether the mutation was executed is unknown"
        fix = "check the data, and call the mutator again if the mutation had no effect"
        super().__init__("mutation-lost", message, name, fix)


class QueryRefused(ClientError):
    """The application does not define a named query, or refused its arguments."""

    def __init__(self, name: str, message: str, details: Any = None) -> None:
        super().__init__("query-refused", message, name, "define the query at the application's query endpoint")
        self.details = details


class Disconnected(ClientError):
    """The client stopped connecting during a call that needs the server; `error` is the cache's error, if any."""

    def __init__(self, error: SyncError | None) -> None:
        message = "the client was closed" if error is None else str(error)
        super().__init__("disconnected", message, fix="repair the cause, then call connect()")
        self.error = error

    @property
    def kind(self) -> ErrorKind | None:
        """The kind of the cache's error; None if the client was closed."""
        return None if self.error is None else self.error.kind
