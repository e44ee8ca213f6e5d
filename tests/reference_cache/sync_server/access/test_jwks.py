"""The keys of an issuer are fetched once, kept, and fetched again when a token names a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.config import CacheConfig
from reference_cache.sync_server.access.auth import Authenticator
from reference_cache.sync_server.access.jwks import KEPT_SECONDS, MAX_BYTES, PAUSE_SECONDS, RemoteKeys
from reference_cache.sync_server.access.jwt import BadToken, TokenRules, decode, header
from tests.reference_cache.sync_server.signed_by_jose import Signed, sign
from tests.reference_cache.sync_server.tokens import hs256


class Issuer:
    """A server of keys. `gate` holds answers back while it is closed."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.answer: web.Response | None = None
        self.requests = 0
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/keys", self._keys)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
        return runner

    async def _keys(self, _: web.Request) -> web.Response:
        self.requests += 1
        self.asked.set()
        await self.gate.wait()
        return self.answer or web.json_response({"keys": self.keys})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def signed() -> dict[str, Signed]:
    return sign("RS256", "PS256", "ES256", "EdDSA")


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    runner = await made.start()
    yield made
    made.gate.set()
    await runner.cleanup()


async def claims(keys: RemoteKeys, token: str) -> Any:
    return decode(token, TokenRules(await keys.key_for(header(token))), "ann", 0)


async def test_each_token_is_checked_with_the_key_it_names(issuer: Issuer, signed: dict[str, Signed]) -> None:
    issuer.keys = [each.key for each in signed.values()]
    keys = RemoteKeys(issuer.url)
    for each in signed.values():
        assert (await claims(keys, each.token))["role"] == "admin"
        with pytest.raises(BadToken, match="signature"):
            await claims(keys, each.forged)
    assert issuer.requests == 1


async def test_many_tokens_at_once_are_one_request(issuer: Issuer, signed: dict[str, Signed]) -> None:
    issuer.keys = [signed["ES256"].key]
    issuer.gate.clear()
    keys = RemoteKeys(issuer.url)
    waiting = [asyncio.create_task(claims(keys, signed["ES256"].token)) for _ in range(20)]
    leaving = asyncio.create_task(claims(keys, signed["ES256"].token))
    await asyncio.wait_for(issuer.asked.wait(), 60)
    leaving.cancel()
    issuer.gate.set()
    assert len(await asyncio.gather(*waiting)) == 20
    assert issuer.requests == 1


async def test_a_new_key_is_fetched_but_not_too_often(issuer: Issuer, signed: dict[str, Signed]) -> None:
    clock = Clock()
    issuer.keys = [signed["RS256"].key]
    keys = RemoteKeys(issuer.url, clock)
    await claims(keys, signed["RS256"].token)
    issuer.keys = [signed["ES256"].key]
    with pytest.raises(BadToken, match="no applicable key"):
        await claims(keys, signed["ES256"].token)
    assert issuer.requests == 1
    clock.now += PAUSE_SECONDS
    assert (await claims(keys, signed["ES256"].token))["role"] == "admin"
    with pytest.raises(BadToken, match="no applicable key"):
        await claims(keys, signed["RS256"].token)
    assert issuer.requests == 2


async def test_old_keys_are_fetched_again(issuer: Issuer, signed: dict[str, Signed]) -> None:
    clock = Clock()
    issuer.keys = [signed["RS256"].key]
    keys = RemoteKeys(issuer.url, clock)
    await claims(keys, signed["RS256"].token)
    issuer.keys = []
    clock.now += KEPT_SECONDS
    with pytest.raises(BadToken, match="no applicable key"):
        await claims(keys, signed["RS256"].token)
    assert issuer.requests == 2


@pytest.mark.parametrize(
    "differs", [{"use": "enc"}, {"alg": "RS512"}, {"key_ops": ["sign"]}, {"kid": "other"}, {"kty": "EC"}]
)
async def test_a_key_for_something_else_is_not_used(
    issuer: Issuer, signed: dict[str, Signed], differs: dict[str, Any]
) -> None:
    issuer.keys = [{**signed["RS256"].key, **differs}]
    with pytest.raises(BadToken, match="no applicable key"):
        await claims(RemoteKeys(issuer.url), signed["RS256"].token)


async def test_keys_that_cannot_be_distinguished_are_not_guessed(issuer: Issuer, signed: dict[str, Signed]) -> None:
    issuer.keys = [signed["RS256"].key, signed["RS256"].key]
    with pytest.raises(BadToken, match="several keys"):
        await claims(RemoteKeys(issuer.url), signed["RS256"].token)


async def test_a_shared_secret_in_the_set_proves_nothing(issuer: Issuer) -> None:
    issuer.keys = [{"kty": "oct", "k": "cw"}]
    with pytest.raises(BadToken, match="unsupported"):
        await claims(RemoteKeys(issuer.url), hs256("s", sub="ann"))
    assert issuer.requests == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"status": 503}, "503"),
        ({"status": 302, "headers": {"Location": "/keys"}}, "302"),
        ({"text": "keys"}, "not JSON"),
        ({"text": '{"keys": [1]}'}, "not a JSON Web Key Set"),
        ({"text": "[]"}, "not a JSON Web Key Set"),
        ({"body": b" " * (MAX_BYTES + 1)}, "more than"),
    ],
)
async def test_an_issuer_that_answers_nonsense_is_named_and_asked_again(
    issuer: Issuer, signed: dict[str, Signed], answer: dict[str, Any], why: str
) -> None:
    issuer.answer = web.Response(**answer)
    keys = RemoteKeys(issuer.url)
    with pytest.raises(BadToken, match=f"ZERO_AUTH_JWKS_URL cannot be read.*{why}"):
        await claims(keys, signed["RS256"].token)
    issuer.answer, issuer.keys = None, [signed["RS256"].key]
    assert (await claims(keys, signed["RS256"].token))["role"] == "admin"


async def test_clients_are_let_in_by_the_issuers_keys(issuer: Issuer, signed: dict[str, Signed]) -> None:
    issuer.keys = [signed["EdDSA"].key]
    authenticator = Authenticator(CacheConfig(upstream_db="ws://x", auth_jwks_url=issuer.url))
    assert (await authenticator.first("ann", signed["EdDSA"].token)).claims == {"role": "admin", "sub": "ann"}
    for user, token in (("bob", signed["EdDSA"].token), ("ann", signed["RS256"].token), ("ann", "opaque")):
        with pytest.raises(SyncError) as refused:
            await authenticator.first(user, token)
        assert refused.value.kind is ErrorKind.AUTH_INVALIDATED
