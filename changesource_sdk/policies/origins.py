"""Which requests may come out of a web browser. Pure.

A browser lets any page open a WebSocket to any address its user can reach, so a page on the Internet can talk to an
endpoint on the user's own machine. Such a request always names the page in `Origin`, which no consumer sends: it is
refused unless that origin is allowed.

A page can also reach the plain HTTP pages under a name of its own that it points at 127.0.0.1 (DNS rebinding); it is
then the same origin and sends no `Origin`, but `Host` has its name. Where the endpoint listens on loopback, pages
with content are served under an address, a `localhost` name or an allowed name only. Elsewhere the names an
endpoint goes by (containers, services, proxies) are not known here, so the check needs the list of allowed hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from service_kit.addresses import is_loopback

ANY = "*"


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """The origins and host names that are allowed; `is_loopback` if the endpoint listens there."""

    is_loopback: bool
    origins: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, listen_host: str, origins: tuple[str, ...], hosts: tuple[str, ...]) -> BrowserRules:
        """The rules of an endpoint that listens on `listen_host`."""
        lower_origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        return cls(is_loopback(listen_host), lower_origins, frozenset(host.lower() for host in hosts))

    def allow_origins(self, origins: list[str]) -> bool:
        """Whether a request with these `Origin` headers may continue; one without any may."""
        return ANY in self.origins or all(origin.lower() in self.origins for origin in origins)

    def allow_host(self, host: str | None) -> bool:
        """Whether pages may be served under this `Host` header."""
        if ANY in self.hosts or not (self.is_loopback or self.hosts):
            return True
        name = host_name(host or "")
        return name in self.hosts or name == "localhost" or name.endswith(".localhost") or is_address(name)


def host_name(header: str) -> str:
    """The name or address in a `Host` header, in lower case and without port and brackets."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def is_address(name: str) -> bool:
    """Whether it is an IP address, which no DNS server can point elsewhere."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def origin_problem(origins: tuple[str, ...]) -> str | None:
    """What is wrong with a setting of allowed origins."""
    for origin in origins:
        parts = urlsplit(origin)
        if origin != ANY and (not parts.scheme or not parts.netloc or parts.path.strip("/") or parts.query):
            return "must be origins such as https://app.example.com, with commas between them, or *"
    return None
