"""Which requests are answered, decided before any work is done for them.

zero-cache repeats a refused request every 25 ms, so a refusal costs a few string operations and touches neither disk
nor log. The order is fixed: the origin (403), the path (404 names the versions served), the key or certificate (401),
the parameters (400 names the one at fault). Each refusal has a stable `reason` for metrics and logs; its text goes to
the peer and never repeats a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from changesource_sdk.endpoint.access.auth import Access, Caller
from changesource_sdk.policies.origins import BrowserRules, host_name
from protocol.errors import HandshakeError
from protocol.handshake import Handshake, parse_parameters, parse_path

#: Longer targets are refused unread; a real one has a few hundred characters.
MAX_TARGET = 8192


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a request says; `certificate` is the name in a verified client certificate."""

    target: str
    host: str | None = None
    origins: tuple[str, ...] = ()
    authorization: str | None = None
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP answer instead of a stream or page."""

    status: int
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that becomes a stream, and whose it is."""

    handshake: Handshake
    caller: Caller


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides on requests. `publications` are those of the upstream that are served; None if it has none, or they are
    not known here.
    """

    access: Access
    browsers: BrowserRules
    publications: frozenset[str] | None = None

    def refuse_browser(self, incoming: Incoming) -> Refusal | None:
        """The answer to a web page whose origin is not allowed."""
        if self.browsers.allow_origins(list(incoming.origins)):
            return None
        return Refusal(403, "origin", "web pages may not connect here; allow this origin with --allowed-origins")

    def refuse_page(self, incoming: Incoming) -> Refusal | None:
        """The answer to a request for a page that is not for everybody, if it may not be served."""
        _, _, query = incoming.target.partition("?")
        caller = self.access.identify(parse_qs(query), incoming.authorization, incoming.certificate)
        if isinstance(caller, str):
            return Refusal(401, "key", caller)
        # Who has shown a key or certificate is no page of somebody else's.
        if self.access.is_open and not self.browsers.allow_host(incoming.host):
            name = host_name(incoming.host or "")[:100]
            return Refusal(403, "host", f"not served as {name!r}; allow this name with --allowed-hosts")
        return None

    def admit(self, incoming: Incoming) -> Admission | Refusal:
        """The stream that a request opens, or the answer that refuses it."""
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
        return self._other_publications(handshake.publications) or Admission(handshake, caller)

    def _other_publications(self, asked: frozenset[str]) -> Refusal | None:
        """A consumer that names publications gets exactly those, or nothing: it must not see more than it asked for."""
        served = self.publications
        if not asked or served is None or asked == served:
            return None
        names = ",".join(sorted(served))
        fix = f"set ZERO_APP_PUBLICATIONS={names} or leave it empty, or serve what it asks for"
        return Refusal(400, "publications", f"publications: {names} are served, not {','.join(sorted(asked))}; {fix}")
