"""Verifies JSON Web Tokens of clients: PyJWT checks the signature, this module checks the claims.

The key determines the allowed algorithms, never the token. PyJWT accepts times that are strings, booleans or truncated
fractions, and infinity as a date; the official cache's library accepts numbers only. So the claims are checked here: a
time is a finite number in the range of dates. A token that requires an extension (`crit`) is refused, because none is
supported.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from jwt import PyJWK, PyJWS
from jwt.algorithms import HMACAlgorithm, OKPAlgorithm
from jwt.exceptions import InvalidAlgorithmError, InvalidKeyError, InvalidSignatureError, PyJWTError
from jwt.warnings import InsecureKeyLengthWarning

LEAST_RSA_BITS = 2048
"""RFC 7518 requires this size."""

LATEST = 2**53
"""The largest time in seconds; above it, JSON readers differ about integers."""

SECRET_ALGORITHMS = ("HS256", "HS384", "HS512")
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVE_ALGORITHMS = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("EC", "secp256k1"): ("ES256K",),
    ("OKP", "Ed25519"): ("EdDSA", "Ed25519"),
}
_PUBLIC_MEMBERS = ("kty", "crv", "n", "e", "x", "y")

_jws = PyJWS()
if "Ed25519" not in _jws.get_algorithms():
    _jws.register_algorithm("Ed25519", OKPAlgorithm())  # the name RFC 9864 gives to EdDSA on that curve


class BadToken(Exception):
    """An invalid token; the text says why."""


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """A key in PyJWT's form, and the algorithms it may be used with."""

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The key that must have signed a token, and the issuer and audience it must name."""

    key: VerifyKey
    issuer: str | None = None
    audience: str | None = None


def header(token: str) -> Mapping[str, Any]:
    """The unverified header of a token; raises `BadToken`."""
    if token.count(".") != 2:
        raise BadToken("is not a signed JSON Web Token")
    try:
        fields: Mapping[str, Any] = _jws.get_unverified_header(token)
    except (PyJWTError, ValueError) as error:
        raise BadToken(f"is not a JSON Web Token: {error}") from None
    if "crit" in fields:
        raise BadToken('extension in the "crit" header is not supported')
    return fields


def decode(token: str, rules: TokenRules, subject: str, now: float) -> Mapping[str, Any]:
    """The claims of a token, verified for `subject` at time `now` (since the epoch); raises `BadToken`."""
    header(token)
    claims = _claims(_signed_payload(token, rules.key))
    _check_times(claims, now)
    _check_claim(claims, "sub", subject)
    _check_claim(claims, "iss", rules.issuer)
    audience = claims.get("aud")
    if rules.audience is not None and rules.audience not in (audience if isinstance(audience, list) else [audience]):
        raise BadToken('unexpected "aud" claim value')
    return claims


def _signed_payload(token: str, key: VerifyKey) -> bytes:
    try:
        # A short secret is the operator's choice, as with the official cache; a short RSA key is refused when loaded.
        with warnings.catch_warnings(action="ignore", category=InsecureKeyLengthWarning):
            payload: bytes = _jws.decode_complete(token, key.key, algorithms=list(key.algorithms))["payload"]
    except (InvalidSignatureError, InvalidAlgorithmError, InvalidKeyError):
        raise BadToken("signature verification failed") from None
    except (PyJWTError, ValueError) as error:
        raise BadToken(f"is not a JSON Web Token: {error}") from None
    return payload


def _claims(payload: bytes) -> Mapping[str, Any]:
    try:
        claims = json.loads(payload, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise BadToken("is not a JSON Web Token")
    return claims


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    for name in ("exp", "nbf", "iat"):
        if name in claims and not _is_time(claims[name]):
            raise BadToken(f'"{name}" claim must be a number')
    if claims.get("exp", now + 1) <= now:
        raise BadToken('"exp" claim timestamp check failed')
    if claims.get("nbf", now) > now:
        raise BadToken('"nbf" claim timestamp check failed')


def _is_time(value: object) -> bool:
    # Neither infinity nor NaN compares as small.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LATEST


def _check_claim(claims: Mapping[str, Any], name: str, expected: str | None) -> None:
    if expected is not None and claims.get(name) != expected:
        raise BadToken(f'unexpected "{name}" claim value')


def with_secret(secret: bytes) -> VerifyKey:
    """The key for tokens signed with a shared secret; raises `BadToken` for a public key or certificate."""
    try:
        return VerifyKey(HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret), SECRET_ALGORITHMS)
    except InvalidKeyError as error:
        raise BadToken(f"the secret cannot be used: {error}") from None


def with_jwk(key: Mapping[str, Any]) -> VerifyKey:
    """The key of a JWK, shared or public; raises `BadToken` for an unsupported kind."""
    if key.get("kty") == "oct":
        return VerifyKey(_loaded({"kty": "oct", "k": key.get("k", "")}, SECRET_ALGORITHMS), SECRET_ALGORITHMS)
    return with_public_jwk(key)


def with_public_jwk(key: Mapping[str, Any]) -> VerifyKey:
    """The key of a public JWK; raises `BadToken` for any other."""
    kind, curve = key.get("kty"), key.get("crv")
    algorithms = RSA_ALGORITHMS if kind == "RSA" else CURVE_ALGORITHMS.get((str(kind), str(curve)))
    if algorithms is None:
        raise BadToken(f"keys of type {kind} {curve or ''} are not supported; use RSA, EC or Ed25519")
    loaded = _loaded({name: key[name] for name in _PUBLIC_MEMBERS if name in key}, algorithms)
    if kind == "RSA" and loaded.key_size < LEAST_RSA_BITS:
        raise BadToken(f"RSA keys have {LEAST_RSA_BITS} bits or more")
    return VerifyKey(loaded, algorithms)


def _loaded(key: dict[str, Any], algorithms: tuple[str, ...]) -> Any:
    try:
        return PyJWK(key, algorithms[0]).key
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadToken(f"the key cannot be used: {error}") from None
