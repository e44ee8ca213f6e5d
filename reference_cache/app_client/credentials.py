"""For whom the cache speaks to the application, and how that client's requests are addressed.

Two connections with equal credentials get equal answers, so an answer may be shared between them; everything that can
change an answer (user, token, cookies, forwarded headers, URL) is part of the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from protocol import values
from reference_cache.config import AppEndpoint

Headers = tuple[tuple[str, str], ...]

_PROVING = ("authorization", "cookie")
"""Headers of the socket's request that prove who the client is, where they are passed on at all."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a client's requests of one kind go, and the headers that are the client's own."""

    url: str | None = None
    headers: Headers = ()
    is_clients_choice: bool = False
    secrets: Headers = ()
    """The headers that can prove who the client is: cookies, authorization, and what the client itself set."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One client's identity towards the application."""

    user_id: str | None = None
    token: str | None = None
    query: Address = Address()
    mutate: Address = Address()

    @property
    def secret(self) -> str | None:
        """What the client presents to prove who it is: its token, or else its secret headers; None if nothing."""
        if self.token:
            return f"token {self.token}"
        return f"headers {values.dumps(self.query.secrets).decode()}" if self.query.secrets else None

    def with_token(self, token: str | None) -> Credentials:
        return replace(self, token=token)


def address(endpoint: AppEndpoint, request_headers: Mapping[str, str]) -> Address:
    """How requests for a socket that was opened with these headers go out."""
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
    given: Address, endpoint: AppEndpoint, url: str | None, headers: Mapping[str, str] | None
) -> Address:
    """The address with what the client itself wishes, as far as the configuration lets it."""
    allowed = _allowed((headers or {}).items(), endpoint.allowed_client_headers)
    own = dict(given.headers) | dict(allowed)
    secrets = dict(given.secrets) | {name.lower(): value for name, value in allowed}
    return Address(url or given.url, tuple(sorted(own.items())), url is not None, tuple(sorted(secrets.items())))


def _allowed(headers: Iterable[tuple[str, str]], names: Iterable[str]) -> list[tuple[str, str]]:
    allowed = {name.lower() for name in names}
    return [(name, value) for name, value in headers if name.lower() in allowed]
