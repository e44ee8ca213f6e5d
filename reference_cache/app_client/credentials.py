"""For whom the cache speaks to the application, and how that client's requests are addressed.

Two connections with equal credentials get equal answers, so an answer may be shared between them; everything that can
change an answer (user, token, cookies, forwarded headers, URL) is part of the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reference_cache.config import AppEndpoint

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a client's requests of one kind go, and the headers that are the client's own."""

    url: str | None = None
    headers: Headers = ()
    is_clients_choice: bool = False


@dataclass(frozen=True, slots=True)
class Credentials:
    """One client's identity towards the application."""

    user_id: str | None = None
    token: str | None = None
    query: Address = Address()
    mutate: Address = Address()

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
    return Address(endpoint.urls[0] if endpoint.urls else None, tuple(sorted(headers.items())))


def chosen_by_client(
    given: Address, endpoint: AppEndpoint, url: str | None, headers: Mapping[str, str] | None
) -> Address:
    """The address with what the client itself wishes, as far as the configuration lets it."""
    own = dict(given.headers) | dict(_allowed((headers or {}).items(), endpoint.allowed_client_headers))
    return Address(url or given.url, tuple(sorted(own.items())), url is not None)


def _allowed(headers: Iterable[tuple[str, str]], names: Iterable[str]) -> list[tuple[str, str]]:
    allowed = {name.lower() for name in names}
    return [(name, value) for name, value in headers if name.lower() in allowed]
