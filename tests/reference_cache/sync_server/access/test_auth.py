"""Tokens of connections: opaque ones pass, verified ones carry claims, and neither can be dropped."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.config import CacheConfig
from reference_cache.errors import BadSetting
from reference_cache.sync_server.access.auth import Authenticator, Identity
from tests.reference_cache.sync_server.tokens import hs256

APP = {"query_urls": ("http://app/q",), "mutate_urls": ("http://app/m",)}


def authenticator(**settings: Any) -> Authenticator:
    return Authenticator(CacheConfig(upstream_db="ws://x", **settings), lambda: 100.0)


async def kind_of(call: Any, *arguments: Any) -> ErrorKind:
    with pytest.raises(SyncError) as refused:
        await call(*arguments)
    return refused.value.kind


async def test_without_a_token_there_is_no_verified_user() -> None:
    assert await authenticator().first(None, None) == Identity()
    assert await authenticator(auth_secret="s").first("ann", "") == Identity()


async def test_an_opaque_token_is_verified_by_the_application() -> None:
    assert await authenticator(**APP).first("ann", "t") == Identity("t")


async def test_a_token_that_neither_cache_nor_application_can_verify_is_refused() -> None:
    assert await kind_of(authenticator().first, "ann", "t") is ErrorKind.INTERNAL


async def test_a_token_needs_a_user() -> None:
    assert await kind_of(authenticator(**APP).first, None, "t") is ErrorKind.UNAUTHORIZED


async def test_a_verified_token_gives_claims_and_a_wrong_one_asks_for_another() -> None:
    made = authenticator(auth_secret="s")
    token = hs256("s", sub="ann", role="admin")
    assert await made.first("ann", token) == Identity(token, {"sub": "ann", "role": "admin"})
    assert await kind_of(made.first, "bob", token) is ErrorKind.AUTH_INVALIDATED
    assert await kind_of(made.first, "ann", "opaque") is ErrorKind.AUTH_INVALIDATED


async def test_a_token_may_change_but_not_go_away() -> None:
    made = authenticator(**APP)
    assert await made.changed(Identity("old"), "ann", "new") == Identity("new")
    assert await made.changed(Identity(), "ann", "") == Identity()
    assert await kind_of(made.changed, Identity("old"), "ann", "") is ErrorKind.UNAUTHORIZED


async def test_a_token_issued_earlier_is_not_taken() -> None:
    made = authenticator(auth_secret="s")
    old, new = [await made.first("ann", hs256("s", sub="ann", iat=time)) for time in (1, 2)]
    assert await made.changed(old, "ann", str(new.token)) == new
    assert await made.changed(new, "ann", str(old.token)) == new
    assert await kind_of(made.changed, new, "ann", hs256("s", sub="ann")) is ErrorKind.UNAUTHORIZED


def test_a_key_of_an_unsupported_kind_is_a_bad_setting() -> None:
    with pytest.raises(BadSetting, match="ZERO_AUTH_JWK"):
        authenticator(auth_jwk='{"kty":"OKP","crv":"X25519"}')
