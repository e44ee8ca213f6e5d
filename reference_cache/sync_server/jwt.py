"""JSON Web Tokens, checked with a secret (HS256/384/512) or a public key in JWK form (RS, PS, ES and EdDSA)."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reference_cache.sync_server.signatures import CURVES, HASHES, Verify, ecdsa, ed25519, rsa

LEAST_RSA_BITS = 2048
"""Shorter keys prove nothing, says RFC 7518."""


class BadToken(Exception):
    """A token that proves nothing; the text says why."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Who may have signed a token, and what it must say."""

    verify: Verify
    issuer: str | None = None
    audience: str | None = None


def header(token: str) -> Mapping[str, Any]:
    """What a token says of its signature; raises `BadToken`."""
    return _object(_parts(token)[0])


def decode(token: str, rules: TokenRules, subject: str, now: float) -> Mapping[str, Any]:
    """The claims of a token that is signed, in force and about `subject`; raises `BadToken`."""
    parts = _parts(token)
    algorithm, claims = header(token).get("alg"), _object(parts[1])
    signed, signature = ".".join(parts[:2]).encode(), _bytes(parts[2])
    if not isinstance(algorithm, str) or not rules.verify(algorithm, signed, signature):
        raise BadToken("signature verification failed")
    _check_times(claims, now)
    _check_claim(claims, "sub", subject)
    _check_claim(claims, "iss", rules.issuer)
    audience = claims.get("aud")
    if rules.audience is not None and rules.audience not in (audience if isinstance(audience, list) else [audience]):
        raise BadToken('unexpected "aud" claim value')
    return claims


def _parts(token: str) -> list[str]:
    parts = token.split(".")
    if len(parts) != 3:
        raise BadToken("is not a signed JSON Web Token")
    return parts


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    for name in ("exp", "nbf"):
        if name in claims and (isinstance(claims[name], bool) or not isinstance(claims[name], int | float)):
            raise BadToken(f'"{name}" claim must be a number')
    if claims.get("exp", now + 1) <= now:
        raise BadToken('"exp" claim timestamp check failed')
    if claims.get("nbf", now) > now:
        raise BadToken('"nbf" claim timestamp check failed')


def _check_claim(claims: Mapping[str, Any], name: str, expected: str | None) -> None:
    if expected is not None and claims.get(name) != expected:
        raise BadToken(f'unexpected "{name}" claim value')


def with_secret(secret: bytes) -> Verify:
    """Tokens signed with a shared secret."""

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        made = HASHES.get(algorithm[2:]) if algorithm.startswith("HS") else None
        return made is not None and hmac.compare_digest(hmac.new(secret, signed, made).digest(), signature)

    return verify


def with_jwk(key: Mapping[str, Any]) -> Verify:
    """Tokens signed by the owner of a JWK; raises `BadToken` for a key of another kind."""
    return with_secret(_bytes(key.get("k", ""))) if key.get("kty") == "oct" else with_public_jwk(key)


def with_public_jwk(key: Mapping[str, Any]) -> Verify:
    """Tokens signed by the owner of a public key; raises `BadToken` for anything else."""
    try:
        return _public_key(key)
    except ValueError as error:
        raise BadToken(f"the key is not one: {error}") from None


def _public_key(key: Mapping[str, Any]) -> Verify:
    match key.get("kty"), key.get("crv"):
        case "RSA", _:
            modulus, exponent = _number(key, "n"), _number(key, "e")
            if modulus.bit_length() < LEAST_RSA_BITS:
                raise BadToken(f"RSA keys have {LEAST_RSA_BITS} bits or more")
            return rsa(modulus, exponent)
        case "EC", str(name) if name in CURVES:
            return ecdsa(CURVES[name], _number(key, "x"), _number(key, "y"))
        case "OKP", "Ed25519":
            return ed25519(_bytes(str(key.get("x"))))
        case kind, curve:
            raise BadToken(f"keys of type {kind} {curve or ''} are not supported; use RSA, EC or Ed25519")


def _number(key: Mapping[str, Any], name: str) -> int:
    if not isinstance(key.get(name), str):
        raise BadToken(f"the key lacks {name!r}")
    return int.from_bytes(_bytes(key[name]), "big")


def _object(part: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_bytes(part))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadToken("is not a JSON Web Token")
    return value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadToken("is not base64url") from None
