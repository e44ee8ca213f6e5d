"""What an application says no with, and what can go wrong between it and its store."""

from __future__ import annotations

from typing import Any


class ApplicationError(Exception):
    """The application refuses a query or a mutation; the client is told the message and the details (a JSON value)."""

    def __init__(self, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class InvalidArguments(ApplicationError):
    """Arguments that do not fit what the handler declares; `details` lists every misfit with its path."""


class UnknownName(ApplicationError):
    """A query or mutator nobody declared."""


class DeclarationError(TypeError):
    """A handler that cannot be declared like this: a mistake of the application's author, raised at import."""


class AuthRefusal(Exception):
    """Credentials that are not accepted; the client is asked for others and tries again with them."""

    status = 401


class Unauthenticated(AuthRefusal):
    """Nobody knows who this is: no token, a bad one, an expired one."""


class Forbidden(AuthRefusal):
    """Known, but not let in."""

    status = 403


class StoreUnavailable(Exception):
    """The store could not take a transaction at all; nothing was written, and the client will push again."""


class OutOfOrder(Exception):
    """A mutation whose predecessors have not been processed."""

    def __init__(self, client_id: str, received: int, expected: int) -> None:
        super().__init__(f"Client {client_id} sent mutation ID {received} but expected {expected}")


class AlreadyProcessed(Exception):
    """A mutation that was processed before."""

    def __init__(self, client_id: str, received: int, last: int) -> None:
        super().__init__(
            f"Ignoring mutation from {client_id} with ID {received} as it was already processed. Expected: {last}"
        )
