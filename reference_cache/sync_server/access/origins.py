"""Which origins may open sockets, and which requests count as local. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from service_kit.addresses import is_loopback

_FORWARDING = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_local(peer: str | None, headers: Mapping[str, str]) -> bool:
    """Whether a request comes from this machine: not through a proxy, and not by DNS rebinding (a web page whose host
    name resolves to this machine)."""
    if peer is None or not is_loopback(peer) or any(name in headers for name in _FORWARDING):
        return False
    try:
        host = urlsplit(f"//{headers.get('Host', '')}").hostname or ""
    except ValueError:
        return False
    return host == "localhost" or is_loopback(host)


def admits_origin(origin: str | None, allowed: Iterable[str]) -> bool:
    """Whether a page of this origin may connect. Programs send no origin and may; an empty list admits any origin.

    `https://*.example.com` in the list matches every host below example.com.
    """
    patterns = list(allowed)
    if origin is None or not patterns:
        return True
    canonical = canonical_origin(origin)
    return any(_matches(canonical, canonical_origin(pattern)) for pattern in patterns)


def canonical_origin(origin: str) -> str:
    """The canonical form of an origin: lower case, without the default port."""
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
