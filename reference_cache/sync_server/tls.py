"""The TLS context of the sync server."""

from __future__ import annotations

import ssl
from pathlib import Path

from reference_cache.errors import CacheError

_VARIABLES = "CHANGESOURCE_CACHE_TLS_CERT, CHANGESOURCE_CACHE_TLS_KEY"


def tls_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The server's TLS context, or None for plain text. Raises `CacheError` if the files cannot be used."""
    if cert is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        fix = "give a PEM certificate chain and the unencrypted key that belongs to it"
        raise CacheError("bad-tls", f"cannot use {cert} with {key}: {error}", _VARIABLES, fix) from None
    return context
