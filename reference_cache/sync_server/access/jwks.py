"""The public keys of an issuer, fetched from its JSON Web Key Set (`ZERO_AUTH_JWKS_URL`).

The set is cached for ten minutes. A token that names an unknown key makes it fetch again, because keys are rotated, but
not within thirty seconds of the last fetch, so that invented names cost little. There is one request at a time, however
many clients connect. The key is chosen as in the official cache: by type, id, algorithm, use and curve, never a shared
secret, and exactly one must match.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp

from protocol import values
from protocol.errors import CodecError
from reference_cache.sync_server.access.jwt import CURVE_ALGORITHMS, BadToken, VerifyKey, with_public_jwk

KEPT_SECONDS = 600.0
PAUSE_SECONDS = 30.0
FETCH_SECONDS = 5.0
MAX_BYTES = 1024 * 1024

_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES = {algorithm: curve for (_, curve), algorithms in CURVE_ALGORITHMS.items() for algorithm in algorithms}

Jwk = Mapping[str, Any]


class RemoteKeys:
    """The keys at a URL. Invariant: at most one request is running."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        # The last fetched set; a failed fetch keeps the old one.
        self._keys: Sequence[Jwk] = ()
        # When it was fetched, on `clock`; None before the first time.
        self._fetched: float | None = None
        # The running request, which all waiting clients share.
        self._fetching: asyncio.Task[None] | None = None

    async def key_for(self, header: Mapping[str, Any]) -> VerifyKey:
        """The key for a token with this header; raises `BadToken`."""
        kind = _KINDS.get(str(header.get("alg"))[:2])
        if kind is None:
            raise BadToken('unsupported "alg" value for a JSON Web Key Set')
        if self._age() >= KEPT_SECONDS:
            await self._fetch()
        matching = self._matching(kind, header)
        if not matching and self._age() >= PAUSE_SECONDS:
            await self._fetch()
            matching = self._matching(kind, header)
        if len(matching) != 1:
            raise BadToken(f"{'several keys match' if matching else 'no applicable key found'} in the JSON Web Key Set")
        return with_public_jwk(matching[0])

    def _age(self) -> float:
        return KEPT_SECONDS if self._fetched is None else self._clock() - self._fetched

    def _matching(self, kind: str, header: Mapping[str, Any]) -> list[Jwk]:
        return [key for key in self._keys if _fits(key, kind, header)]

    async def _fetch(self) -> None:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._load())
            self._fetching.add_done_callback(self._fetched_or_failed)
        # A client that disconnects must not cancel the request of the others.
        await asyncio.shield(self._fetching)

    def _fetched_or_failed(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()

    async def _load(self) -> None:
        try:
            self._keys = _key_set(await self._get())
        except (aiohttp.ClientError, TimeoutError, OSError, CodecError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise BadToken(f"the key set of ZERO_AUTH_JWKS_URL cannot be read: {why}") from None
        self._fetched = self._clock()

    async def _get(self) -> bytes:
        limit = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        headers = {"Accept": "application/json, application/jwk-set+json"}
        async with (
            aiohttp.ClientSession(timeout=limit, headers=headers) as session,
            session.get(self._url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            body = await answer.content.read(MAX_BYTES + 1)
            while len(body) <= MAX_BYTES and (more := await answer.content.read(MAX_BYTES)):
                body += more
            if len(body) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES} bytes")
            return body


def _key_set(text: bytes) -> Sequence[Jwk]:
    match values.loads(text):
        case {"keys": list() as keys} if all(isinstance(key, dict) for key in keys):
            return keys
    raise ValueError("it is not a JSON Web Key Set")


def _fits(key: Jwk, kind: str, header: Mapping[str, Any]) -> bool:
    """Whether a key may verify a token with this header; fields that the key does not have match anything."""
    algorithm, name = header["alg"], header.get("kid")
    operations = key.get("key_ops")
    return (
        key.get("kty") == kind
        and (not isinstance(name, str) or key.get("kid") == name)
        and (not isinstance(key.get("alg"), str) or key["alg"] == algorithm)
        and (not isinstance(key.get("use"), str) or key["use"] == "sig")
        and (not isinstance(operations, list) or "verify" in operations)
        and (kind == "RSA" or key.get("crv") == _CURVES.get(algorithm))
    )
