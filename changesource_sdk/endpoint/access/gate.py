"""Admits or refuses requests before any work is done for them.

zero-cache repeats a refused request every 25 ms, so a refusal costs a few string operations and uses neither disk nor
log. The checks are in this order: origin (403), path (404, which names the versions served), key or certificate (401),
parameters (400, which names the wrong one). Each refusal has a stable `reason` for metrics and logs; its text goes to
the peer and contains no secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from changesource_sdk.endpoint.access.auth import AccessRules, Caller
from changesource_sdk.policies.origins import BrowserRules, host_name
from protocol.errors import HandshakeError
from protocol.stream.handshake import Handshake, parse_parameters, parse_path

#: Longer targets are refused without parsing; a real one has a few hundred characters.
MAX_TARGET = 8192


@dataclass(frozen=True, slots=True)
class Incoming:
    """The relevant parts of a request; `certificate` is the name in a verified client certificate."""

    target: str
    host: str | None = None
    origins: tuple[str, ...] = ()
    authorization: str | None = None
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP error response."""

    status: int
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class StreamAdmission:
    """An admitted stream request and its sender."""

    handshake: Handshake
    caller: Caller


@dataclass(frozen=True, slots=True)
class Gate:
    """Checks requests. `publications` are those of the upstream that are served; None if there are none or unknown."""

    access: AccessRules
    browsers: BrowserRules
    publications: frozenset[str] | None = None

    def refuse_browser(self, incoming: Incoming) -> Refusal | None:
        """The refusal of a web page whose origin is not allowed; None otherwise."""
        if self.browsers.allow_origins(list(incoming.origins)):
            return None
        return Refusal(403, "origin", "web pages may not connect here; allow this origin with --allowed-origins")

    def refuse_page(self, incoming: Incoming) -> Refusal | None:
        """The refusal of a request for a protected page; None if it may be served."""
        _, _, query = incoming.target.partition("?")
        caller = self.access.identify(parse_qs(query), incoming.authorization, incoming.certificate)
        if isinstance(caller, str):
            return Refusal(401, "key", caller)
        # Only without authentication: a foreign web page (DNS rebinding) cannot present a key or certificate.
        if self.access.is_open and not self.browsers.allow_host(incoming.host):
            name = host_name(incoming.host or "")[:100]
            return Refusal(403, "host", f"not served as {name!r}; allow this name with --allowed-hosts")
        return None

    def admit(self, incoming: Incoming) -> StreamAdmission | Refusal:
        """The stream that a request opens, or its refusal."""
        if len(incoming.target) > MAX_TARGET:
            return Refusal(400, "parameters", f"the request target has more than {MAX_TARGET} characters")
        path, _, query = incoming.target.partition("?")
        try:
            parse_path(path)
        except HandshakeError as error:
            return Refusal(error.status, "path", str(error))
        try:
            parameters = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError as error:
            return Refusal(400, "parameters", f"query: {error}")
        caller = self.access.identify(parameters, incoming.authorization, incoming.certificate)
        if isinstance(caller, str):
            return Refusal(401, "key", caller)
        try:
            handshake = parse_parameters(parameters)
        except HandshakeError as error:
            return Refusal(error.status, "parameters", str(error))
        return self._other_publications(handshake.publications) or StreamAdmission(handshake, caller)

    def _other_publications(self, requested: frozenset[str]) -> Refusal | None:
        """Refuse a consumer that names other publications: it must not get more than it requested."""
        served = self.publications
        if not requested or served is None or requested == served:
            return None
        names = ",".join(sorted(served))
        fix = f"set ZERO_APP_PUBLICATIONS={names} or leave it empty, or serve those"
        others = ",".join(sorted(requested))
        return Refusal(400, "publications", f"publications: {names} are served, not {others}; {fix}")
