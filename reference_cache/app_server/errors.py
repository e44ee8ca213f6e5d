"""The exceptions that an application raises to refuse a request, and those of push processing."""

from __future__ import annotations

from typing import Any


class ApplicationError(Exception):
    """The application refuses a query or a mutation; the client gets the message and `details` (a JSON value)."""

    def __init__(self, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class InvalidArguments(ApplicationError):
    """The arguments do not match the handler's declaration; `details` lists every mismatch with its path."""


class UnknownHandler(ApplicationError):
    """No query or mutator of this name is declared."""


class DeclarationError(TypeError):
    """An invalid declaration of a handler: a mistake of the application's author, raised at import."""


class AuthRefusal(Exception):
    """The credentials are not accepted; the client gets new ones and tries again."""

    status = 401


class Unauthenticated(AuthRefusal):
    """The user is unknown: the token is missing, invalid or expired."""


class Forbidden(AuthRefusal):
    """The user is known but has no access."""

    status = 403


class StoreUnavailable(Exception):
    """The store cannot execute transactions now; the client keeps the mutation and pushes it again."""


class OutOfOrder(Exception):
    """A mutation id above the expected one: earlier mutations of the client are missing."""

    def __init__(self, client_id: str, received: int, expected: int) -> None:
        super().__init__(f"Client {client_id} sent mutation ID {received} but expected {expected}")


class AlreadyProcessed(Exception):
    """A mutation id below the expected one."""

    def __init__(self, client_id: str, received: int, expected: int) -> None:
        super().__init__(
            f"Ignoring mutation from {client_id} with ID {received} as it was already processed. Expected: {expected}"
        )
