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


def admit(target: str, authorization: str | None, api_key: str | None) -> Handshake | Refusal:
    """The request as a handshake, or the answer that refuses it."""
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
        return parse_parameters(parameters)
    except HandshakeError as error:
        return Refusal(error.status, "parameters", str(error))
