"""Authenticates clients, as far as the cache itself does.

A token is normally opaque: the cache forwards it to the application, which validates it. With a secret, a key or a key
set configured, it must be a JSON Web Token whose subject is the client's user id, and read permissions may use its
claims. A token requires a user id; a client with a token may change it but not drop it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.sync.errors import ErrorKind, SyncError, unauthorized
from reference_cache.config import CacheConfig
from reference_cache.errors import BadSetting
from reference_cache.sync_server.access.jwks import RemoteKeys
from reference_cache.sync_server.access.jwt import (
    BadToken,
    TokenRules,
    VerifyKey,
    decode,
    header,
    with_jwk,
    with_secret,
)

KeyFor = Callable[[Mapping[str, Any]], Awaitable[VerifyKey]]
"""Returns the key for a token with this header."""

CLOSE_CODE = 3000
"""The close code of a socket whose credentials are refused when it opens, as in zero-cache."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An accepted token, and its claims if the cache has verified it."""

    token: str | None = None
    claims: Mapping[str, Any] | None = None

    @property
    def expires_at(self) -> float | None:
        """The token's expiry in seconds since the epoch; None if unknown."""
        return None if self.claims is None else self.claims.get("exp")


class Authenticator:
    """Accepts or refuses tokens according to the configuration."""

    def __init__(self, config: CacheConfig, clock: Callable[[], float] = time.time) -> None:
        self._key_for = _key_for(config)
        self._issuer, self._audience = config.auth_issuer, config.auth_audience
        self._can_forward = bool(config.query_urls and config.mutate_urls)
        self._clock = clock

    def has_expired(self, identity: Identity) -> bool:
        """Whether the token has expired since it was accepted."""
        return identity.expires_at is not None and identity.expires_at <= self._clock()

    async def first(self, user_id: str | None, token: str | None) -> Identity:
        """The identity of a new connection; raises `SyncError`."""
        if not token:
            return Identity()
        if self._key_for is None and not self._can_forward:
            ways = "both ZERO_QUERY_URL and ZERO_MUTATE_URL, or one of ZERO_AUTH_SECRET, _JWK and _JWKS_URL"
            raise SyncError(ErrorKind.INTERNAL, f"Tokens cannot be checked: set {ways}")
        return await self._accept(user_id, token)

    async def changed(self, before: Identity, user_id: str | None, token: str) -> Identity:
        """The identity after `updateAuth`; raises `SyncError`."""
        if not token:
            if before.token is None:
                return before
            raise unauthorized(
                "No token provided. An unauthenticated client cannot connect to an authenticated client group."
            )
        return before if token == before.token else self._newer(before, await self._accept(user_id, token))

    async def _accept(self, user_id: str | None, token: str) -> Identity:
        if user_id is None:
            raise unauthorized("Authenticated connections require a userID.")
        if self._key_for is None:
            return Identity(token)
        try:
            rules = TokenRules(await self._key_for(header(token)), self._issuer, self._audience)
            return Identity(token, decode(token, rules, user_id, self._clock()))
        except BadToken as error:
            raise SyncError(ErrorKind.AUTH_INVALIDATED, f"Failed to decode auth token: {error}") from None

    def _newer(self, before: Identity, after: Identity) -> Identity:
        """The newer of two tokens: one issued earlier than the current one arrived late, and is ignored."""
        if before.claims is None or after.claims is None or "iat" not in before.claims:
            return after
        if "iat" not in after.claims:
            raise unauthorized("The new token has no issued-at time, but the one before has.")
        return after if after.claims["iat"] > before.claims["iat"] else before


def _key_for(config: CacheConfig) -> KeyFor | None:
    if config.auth_jwks_url is not None:
        return RemoteKeys(config.auth_jwks_url).key_for
    key = _fixed_key(config)
    if key is None:
        return None

    async def always(_: Mapping[str, Any]) -> VerifyKey:
        return key

    return always


def _fixed_key(config: CacheConfig) -> VerifyKey | None:
    if config.auth_secret is not None:
        try:
            return with_secret(config.auth_secret.encode())
        except BadToken as error:
            raise BadSetting("ZERO_AUTH_SECRET", str(error), "give a public key as ZERO_AUTH_JWK") from None
    if config.auth_jwk is not None:
        try:
            return with_jwk(json.loads(config.auth_jwk))
        except BadToken as error:
            fix = "give the public key as a JWK of type RSA, EC or OKP (Ed25519)"
            raise BadSetting("ZERO_AUTH_JWK", str(error), fix) from None
    return None
