"""Who may open a stream: an API key, compared in constant time, and the TLS context.

zero-cache sends no header of its own: the key travels as the `apiKey` query parameter, or as the password of
`ws://user:password@host/…`, which arrives as HTTP Basic. Both are accepted; with no key configured anyone may connect.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from changesource_sdk.errors import ConfigurationError

PARAMETER = "apiKey"


def presented_keys(query: Mapping[str, Sequence[str]], authorization: str | None) -> list[bytes]:
    """Every key a request carries: the query parameters, then the Basic password."""
    keys = [value.encode() for value in query.get(PARAMETER, ())]
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user_and_password = base64.b64decode(credentials.strip(), validate=True)
        except (binascii.Error, ValueError):
            return keys
        keys.append(user_and_password.partition(b":")[2])
    return keys


def admits(expected: str | None, query: Mapping[str, Sequence[str]], authorization: str | None) -> bool:
    """Whether a request may go on. The time taken does not depend on how much of a key is right."""
    if expected is None:
        return True
    wanted = expected.encode()
    matches = [hmac.compare_digest(wanted, key) for key in presented_keys(query, authorization)]
    return any(matches)


def tls_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The server's TLS context, or None for plain text. Raises `ConfigurationError` naming the file at fault."""
    if cert is None or key is None:
        return None
    for path in (cert, key):
        if not path.is_file():
            raise ConfigurationError("bad-tls", f"no such file: {path}", where="TLS", fix="give PEM files that exist")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            "bad-tls",
            f"cannot use {cert} with {key}: {error}",
            where="TLS",
            fix="give a PEM certificate chain and the unencrypted key that belongs to it",
        ) from None
    return context
