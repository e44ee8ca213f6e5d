"""Public-key signatures of JSON Web Tokens, checked: RSA (PKCS #1 v1.5 and PSS), ECDSA on four curves, and Ed25519.

The arithmetic is the `cryptography` package's; here is what JWA (RFC 7518) adds to it. Each function gives a `Verify`
for one key, or raises ValueError for what is no key; the algorithm is decided by the key, never by the token alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

Verify = Callable[[str, bytes, bytes], bool]
"""Whether a signature (last) is right for an algorithm's name and the signed bytes."""

HASHES: dict[str, Callable[..., Any]] = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}
_SHA: dict[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


class Curve(NamedTuple):
    """A curve with the one algorithm that uses it."""

    algorithm: str
    sha: hashes.HashAlgorithm
    curve: ec.EllipticCurve

    @property
    def width(self) -> int:
        """The bytes of one coordinate."""
        return (self.curve.key_size + 7) // 8


CURVES = {
    "P-256": Curve("ES256", _SHA["256"], ec.SECP256R1()),
    "P-384": Curve("ES384", _SHA["384"], ec.SECP384R1()),
    "P-521": Curve("ES512", _SHA["512"], ec.SECP521R1()),
    "secp256k1": Curve("ES256K", _SHA["256"], ec.SECP256K1()),
}


def rsa(modulus: int, exponent: int) -> Verify:
    """RS256, RS384, RS512, PS256, PS384 and PS512."""
    key = RSAPublicNumbers(exponent, modulus).public_key()

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        kind, sha = algorithm[:2], _SHA.get(algorithm[2:])
        if kind not in ("RS", "PS") or sha is None:
            return False
        pss = padding.PSS(padding.MGF1(sha), sha.digest_size)
        return _is_right(lambda: key.verify(signature, signed, pss if kind == "PS" else padding.PKCS1v15(), sha))

    return verify


def ecdsa(curve: Curve, x: int, y: int) -> Verify:
    """The one algorithm of a curve."""
    key = ec.EllipticCurvePublicNumbers(x, y, curve.curve).public_key()

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        if algorithm != curve.algorithm or len(signature) != 2 * curve.width:
            return False
        r, s = (int.from_bytes(part, "big") for part in (signature[: curve.width], signature[curve.width :]))
        return _is_right(lambda: key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(curve.sha)))

    return verify


def ed25519(public: bytes) -> Verify:
    """EdDSA, under either of its names."""
    key = Ed25519PublicKey.from_public_bytes(public)

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        return algorithm in ("EdDSA", "Ed25519") and _is_right(lambda: key.verify(signature, signed))

    return verify


def _is_right(check: Callable[[], None]) -> bool:
    try:
        check()
    except InvalidSignature:
        return False
    return True
