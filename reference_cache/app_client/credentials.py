"""How a client's requests to the application are addressed: its `Credentials` from the socket and the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reference_cache.config import AppEndpoint
from reference_cache.credentials import Address

_PROVING = ("authorization", "cookie")
"""Headers of the WebSocket request that authenticate the client, if they are forwarded at all."""


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
