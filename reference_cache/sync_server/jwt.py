"""JSON Web Tokens, checked with a secret (HS256/384/512) or a public key in JWK form (RS256/384/512, ES256).

Checking needs no secret arithmetic, so the two public-key algorithms are written out here instead of bringing a
cryptography library along. The algorithm is decided by the key, never by the token alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Verify = Callable[[str, bytes, bytes], bool]
"""Whether a signature (last) is right for an algorithm's name and the signed bytes."""

_HASHES = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}
_DIGEST_INFO = {
    "256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "384": bytes.fromhex("3041300d060960864801650304020205000430"),
    "512": bytes.fromhex("3051300d060960864801650304020305000440"),
}


class BadToken(Exception):
    """A token that proves nothing; the text says why."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Who may have signed a token, and what it must say."""

    verify: Verify
    issuer: str | None = None
    audience: str | None = None


def decode(token: str, rules: TokenRules, subject: str, now: float) -> Mapping[str, Any]:
    """The claims of a token that is signed, in force and about `subject`; raises `BadToken`."""
    parts = token.split(".")
    if len(parts) != 3:
        raise BadToken("is not a signed JSON Web Token")
    header, claims = (_object(part) for part in parts[:2])
    algorithm = header.get("alg")
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
        made = _HASHES.get(algorithm[2:]) if algorithm.startswith("HS") else None
        return made is not None and hmac.compare_digest(hmac.new(secret, signed, made).digest(), signature)

    return verify


def with_jwk(text: str) -> Verify:
    """Tokens signed by the owner of a JWK; raises `BadToken` for a key of another kind."""
    key = json.loads(text)
    match key.get("kty"), key.get("crv"):
        case "RSA", _:
            return _rsa(_number(key, "n"), _number(key, "e"))
        case "EC", "P-256":
            return _es256((_number(key, "x"), _number(key, "y")))
        case "oct", _:
            return with_secret(_bytes(key.get("k", "")))
    raise BadToken(f"keys of type {key.get('kty')} {key.get('crv') or ''} are not supported; use RSA or EC P-256")


def _rsa(modulus: int, exponent: int) -> Verify:
    size = (modulus.bit_length() + 7) // 8

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        bits = algorithm[2:]
        if not algorithm.startswith("RS") or bits not in _HASHES or len(signature) != size:
            return False
        digest = _DIGEST_INFO[bits] + _HASHES[bits](signed).digest()
        expected = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
        return pow(int.from_bytes(signature, "big"), exponent, modulus).to_bytes(size, "big") == expected

    return verify


_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
_Point = tuple[int, int] | None


def _es256(public: tuple[int, int]) -> Verify:
    x, y = public
    if (y * y - (x * x * x - 3 * x + _B)) % _P != 0:
        raise BadToken("the key's point is not on the curve P-256")

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        if algorithm != "ES256" or len(signature) != 64:
            return False
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        if not (0 < r < _N and 0 < s < _N):
            return False
        inverse = pow(s, -1, _N)
        digest = int.from_bytes(hashlib.sha256(signed).digest(), "big")
        point = _add(_times(digest * inverse % _N, _G), _times(r * inverse % _N, public))
        return point is not None and point[0] % _N == r

    return verify


def _add(a: _Point, b: _Point) -> _Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % _P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _times(count: int, point: _Point) -> _Point:
    total: _Point = None
    while count:
        if count & 1:
            total = _add(total, point)
        point = _add(point, point)
        count >>= 1
    return total


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
