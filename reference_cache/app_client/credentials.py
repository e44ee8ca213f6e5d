"""A client's credentials towards the application, and where its requests go.

Connections with equal credentials may share an answer of the application, so everything that can change an answer
(user, token, cookies, forwarded headers, URL) is part of the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from protocol import values
from reference_cache.config import AppEndpoint

Headers = tuple[tuple[str, str], ...]

_PROVING = ("authorization", "cookie")
"""Headers of the WebSocket request that authenticate the client, if they are forwarded at all."""


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


def address(endpoint: AppEndpoint, request_headers: Mapping[str, str]) -> Address:
    """The address for a WebSocket that was opened with these request headers."""
    headers = dict(_allowed(request_headers.items(), endpoint.allowed_request_headers))
    lowered = {name.lower(): value for name, value in request_headers.items()}
    if endpoint.forward_cookies and "cookie" in lowered:
        headers["Cookie"] = lowered["cookie"]
    if "origin" in lowered:
        headers["Origin"] = lowered["origin"]
    secrets = [(name.lower(), value) for name, value in headers.items() if name.lower() in _PROVING]
    url = endpoint.urls[0] if endpoint.urls else None
    return Address(url, tuple(sorted(headers.items())), secrets=tuple(sorted(secrets)))


def chosen_by_client(
    default: Address, endpoint: AppEndpoint, url: str | None, headers: Mapping[str, str] | None
) -> Address:
    """The address with URL and headers of the init message; headers that are not allowed are dropped.

    The URL is checked later, when it is requested (`AppPost`).
    """
    allowed = _allowed((headers or {}).items(), endpoint.allowed_client_headers)
    merged = dict(default.headers) | dict(allowed)
    secrets = dict(default.secrets) | {name.lower(): value for name, value in allowed}
    return Address(url or default.url, tuple(sorted(merged.items())), url is not None, tuple(sorted(secrets.items())))


def _allowed(headers: Iterable[tuple[str, str]], names: Iterable[str]) -> list[tuple[str, str]]:
    allowed = {name.lower() for name in names}
    return [(name, value) for name, value in headers if name.lower() in allowed]
