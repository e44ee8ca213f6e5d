"""Who a client is, as far as the cache itself looks at it.

A token is normally opaque: it is handed to the application, which alone knows what it is worth. With a secret or a key
configured it must be a JSON Web Token about the user the client claims to be, and its claims may be used by read
permissions. A token needs a user; a client that had a token may change it but not drop it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.sync.errors import ErrorKind, SyncError, unauthorized
from reference_cache.config import CacheConfig
from reference_cache.errors import BadSetting
from reference_cache.sync_server.jwt import BadToken, TokenRules, Verify, decode, with_jwk, with_secret

CLOSE_CODE = 3000
"""How a socket is closed whose credentials are refused when it opens."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A token that was accepted, and its claims if the cache could read them."""

    token: str | None = None
    claims: Mapping[str, Any] | None = None


class Authenticator:
    """Accepts or refuses tokens according to the configuration."""

    def __init__(self, config: CacheConfig, clock: Callable[[], float] = time.time) -> None:
        self._rules = _rules(config)
        self._can_forward = bool(config.query_urls and config.mutate_urls)
        self._clock = clock

    def first(self, user_id: str | None, token: str | None) -> Identity:
        """The identity of a new connection; raises `SyncError`."""
        if not token:
            return Identity()
        if self._rules is None and not self._can_forward:
            ways = "both ZERO_QUERY_URL and ZERO_MUTATE_URL, or ZERO_AUTH_SECRET, or ZERO_AUTH_JWK"
            raise SyncError(ErrorKind.INTERNAL, f"Tokens cannot be checked: set {ways}")
        return self._accept(user_id, token)

    def changed(self, before: Identity, user_id: str | None, token: str) -> Identity:
        """The identity after `updateAuth`; raises `SyncError`."""
        if not token:
            if before.token is None:
                return before
            raise unauthorized(
                "No token provided. An unauthenticated client cannot connect to an authenticated client group."
            )
        return before if token == before.token else self._newer(before, self._accept(user_id, token))

    def _accept(self, user_id: str | None, token: str) -> Identity:
        if user_id is None:
            raise unauthorized("Authenticated connections require a userID.")
        if self._rules is None:
            return Identity(token)
        try:
            return Identity(token, decode(token, self._rules, user_id, self._clock()))
        except BadToken as error:
            raise SyncError(ErrorKind.AUTH_INVALIDATED, f"Failed to decode auth token: {error}") from None

    def _newer(self, before: Identity, after: Identity) -> Identity:
        """A JWT issued earlier than the one in use is a late arrival, and is dropped."""
        if before.claims is None or after.claims is None or "iat" not in before.claims:
            return after
        if "iat" not in after.claims:
            raise unauthorized("The new token has no issued-at time, but the one before has.")
        return after if after.claims["iat"] > before.claims["iat"] else before


def _rules(config: CacheConfig) -> TokenRules | None:
    verify: Verify
    if config.auth_secret is not None:
        verify = with_secret(config.auth_secret.encode())
    elif config.auth_jwk is not None:
        try:
            verify = with_jwk(config.auth_jwk)
        except BadToken as error:
            raise BadSetting("ZERO_AUTH_JWK", str(error), "give the public key as an RSA or EC P-256 JWK") from None
    else:
        return None
    return TokenRules(verify, config.auth_issuer, config.auth_audience)
