"""Which requests become streams, decided before any work is done for them. Pure.

zero-cache repeats a refused request every 25 ms, so a refusal costs a few string operations and touches neither disk
nor log. The order is fixed: the path (404 names the versions served), the key (401), the parameters (400 names the
one at fault). Each refusal has a stable `reason` for metrics and logs; its text goes to the peer and never repeats a
secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from changesource_sdk.endpoint.auth import PARAMETER, admits
from protocol.errors import HandshakeError
from protocol.handshake import Handshake, parse_parameters, parse_path

#: Longer targets are refused unread; a real one has a few hundred characters.
MAX_TARGET = 8192


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP answer instead of a stream."""

    status: int
    reason: str
    text: str


def admit(
    target: str, authorization: str | None, api_key: str | None, publications: frozenset[str] | None = None
) -> Handshake | Refusal:
    """The request as a handshake, or the answer that refuses it.

    `publications` are those of the store that are served; None if it has none, or they are not known here.
    """
    if len(target) > MAX_TARGET:
        return Refusal(400, "parameters", f"the request target has more than {MAX_TARGET} characters")
    path, _, query = target.partition("?")
    try:
        parse_path(path)
    except HandshakeError as error:
        return Refusal(error.status, "path", str(error))
    try:
        parameters = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        return Refusal(400, "parameters", f"query: {error}")
    if not admits(api_key, parameters, authorization):
        return Refusal(401, "key", f"missing or wrong key; send it as {PARAMETER}=… or as the password of the URL")
    try:
        handshake = parse_parameters(parameters)
    except HandshakeError as error:
        return Refusal(error.status, "parameters", str(error))
    return _other_publications(handshake.publications, publications) or handshake


def _other_publications(asked: frozenset[str], served: frozenset[str] | None) -> Refusal | None:
    """A consumer that names publications gets exactly those, or nothing: it must not see more than it asked for."""
    if not asked or served is None or asked == served:
        return None
    names = ",".join(sorted(served))
    fix = f"set ZERO_APP_PUBLICATIONS={names} or leave it empty, or serve what it asks for"
    return Refusal(400, "publications", f"publications: {names} are served, not {','.join(sorted(asked))}; {fix}")
