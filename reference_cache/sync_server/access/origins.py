"""From where requests are accepted: web pages by their origin, the operator's by where the request comes from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from service_kit.addresses import is_loopback

_FORWARDING = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_local(peer: str | None, headers: Mapping[str, str]) -> bool:
    """Whether a request was made on this machine, by its user: not through a proxy, nor by a web page whose own name
    was made to point here."""
    if peer is None or not is_loopback(peer) or any(name in headers for name in _FORWARDING):
        return False
    try:
        host = urlsplit(f"//{headers.get('Host', '')}").hostname or ""
    except ValueError:
        return False
    return host == "localhost" or is_loopback(host)


def admits_origin(origin: str | None, allowed: Iterable[str]) -> bool:
    """Whether a page of this origin may connect. No origin is no web page; no list admits any origin.

    `https://*.example.com` in the list stands for every host below example.com.
    """
    patterns = list(allowed)
    if origin is None or not patterns:
        return True
    given = spelled_origin(origin)
    return any(_matches(given, spelled_origin(pattern)) for pattern in patterns)


def spelled_origin(origin: str) -> str:
    """One spelling of an origin: lower case, without the default port."""
    lowered = origin.lower().rstrip("/")
    try:
        parts = urlsplit(lowered)
        port = parts.port
    except ValueError:
        return lowered
    is_default = port is not None and port == _DEFAULT_PORTS.get(parts.scheme)
    return lowered.removesuffix(f":{port}") if is_default else lowered


def _matches(origin: str, pattern: str) -> bool:
    before, star, after = pattern.partition("*")
    if not star:
        return origin == pattern
    middle = origin[len(before) : len(origin) - len(after)]
    return origin.startswith(before) and origin.endswith(after) and bool(middle) and not set(middle) & set("/:@")
