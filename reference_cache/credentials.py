"""A client's credentials towards the application, and where its requests go.

Connections with equal credentials may share an answer of the application, so everything that can change an answer
(user, token, cookies, forwarded headers, URL) is part of the value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from protocol import values

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Address:
    """URL and forwarded headers of a client's query or mutate requests."""

    url: str | None = None
    headers: Headers = ()
    is_clients_choice: bool = False
    """Whether the client named the URL (`userQueryURL`, `userPushURL`); then it is matched against the patterns."""
    secrets: Headers = ()
    """The headers that can authenticate the client: cookies, authorization, and those the client itself set."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the application needs to identify one client."""

    user_id: str | None = None
    token: str | None = None
    query: Address = Address()
    mutate: Address = Address()

    @property
    def secret(self) -> str | None:
        """What the client authenticates with: its token, else its secret headers, else None."""
        if self.token:
            return f"token {self.token}"
        return f"headers {values.dumps(self.query.secrets).decode()}" if self.query.secrets else None

    def with_token(self, token: str | None) -> Credentials:
        return replace(self, token=token)
