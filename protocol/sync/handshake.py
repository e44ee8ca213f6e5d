"""How a client opens the sync socket: the path with its version, the query parameters, and the encoded subprotocol.

The one subprotocol a client sends is not a name but data: percent-encoded base64 of JSON with the first message and
the token, if they fit. The server must echo it unchanged. Errors are `HandshakeError`s; like the official server, ours
completes the upgrade and closes with code 1002 and the reason, so that a browser can see it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote_to_bytes

from protocol import values
from protocol.errors import CodecError, HandshakeError

MIN_VERSION = 30
MAX_VERSION = 51
"""Versions of the protocol that can be spoken, both included."""

_PATH = re.compile(r"(?:/[^/]+)?/sync/v(?P<version>[0-9]{1,6})/connect")
_INTEGER = re.compile(r"\s*[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """What a client requests when it opens a socket. `init` is its first message, undecoded, if it was included."""

    version: int
    client_id: str
    client_group_id: str
    user_id: str | None
    base_cookie: str | None
    profile_id: str | None
    ws_id: str
    auth_token: str | None
    init: object | None

    @property
    def is_supported(self) -> bool:
        """Whether its version of the protocol is supported."""
        return MIN_VERSION <= self.version <= MAX_VERSION


def parse_request(target: str, subprotocol: str | None) -> ConnectRequest:
    """The request of a target and of the subprotocol header; raises `HandshakeError`."""
    path, _, query = target.partition("?")
    match = _PATH.fullmatch(path)
    if match is None:
        raise HandshakeError("unknown path", where="path", fix="connect to /sync/v51/connect")
    try:
        parameters = {name: texts[0] for name, texts in parse_qs(query, max_num_fields=100).items()}
    except ValueError as error:
        raise HandshakeError(f"malformed query: {error}", where="query") from None
    for name in ("ts", "lmid"):
        _required_integer(parameters, name)
    client_id, group_id = _required(parameters, "clientID"), _required(parameters, "clientGroupID")
    token, init = decode_subprotocol(subprotocol)
    return ConnectRequest(
        version=int(match["version"]),
        client_id=client_id,
        client_group_id=group_id,
        user_id=parameters.get("userID"),
        base_cookie=parameters.get("baseCookie"),
        profile_id=parameters.get("profileID"),
        ws_id=parameters.get("wsid", ""),
        auth_token=token,
        init=init,
    )


def _required(parameters: Mapping[str, str], name: str) -> str:
    if name not in parameters:
        raise HandshakeError(f"invalid querystring - missing {name}")
    return parameters[name]


def _required_integer(parameters: Mapping[str, str], name: str) -> None:
    # Read as the official server reads it: leading digits count, so that the client's `413.11` is 413.
    value = _required(parameters, name)
    if not _INTEGER.match(value):
        raise HandshakeError(f"invalid querystring parameter {name}, got: {value[:60]}")


def decode_subprotocol(value: str | None) -> tuple[str | None, object | None]:
    """The token (None if there is none or it is empty) and the first message in a subprotocol value."""
    if not value:
        raise HandshakeError("missing header", where="Sec-WebSocket-Protocol")
    try:
        content = values.loads(base64.b64decode(unquote_to_bytes(value), validate=True))
    except (binascii.Error, CodecError) as error:
        raise HandshakeError(f"cannot be decoded: {error}", where="Sec-WebSocket-Protocol") from None
    if not isinstance(content, dict):
        raise HandshakeError("is not an object", where="Sec-WebSocket-Protocol")
    token = content.get("authToken")
    if token is not None and not isinstance(token, str):
        raise HandshakeError("authToken is not a string", where="Sec-WebSocket-Protocol")
    return token or None, content.get("initConnectionMessage")


def encode_subprotocol(init: object | None = None, auth_token: str | None = None) -> str:
    """The subprotocol value a client sends."""
    content = {"initConnectionMessage": init, "authToken": auth_token}
    text = json.dumps({key: value for key, value in content.items() if value is not None}, separators=(",", ":"))
    return quote(base64.b64encode(text.encode()).decode(), safe="")
