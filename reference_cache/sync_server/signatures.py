"""Public-key signatures of JSON Web Tokens, checked: RSA (PKCS #1 v1.5 and PSS), ECDSA on four curves, and Ed25519.

Checking needs no secret arithmetic, so the algorithms are written out here instead of bringing a cryptography library
along. Each function gives a `Verify` for one key; the algorithm is decided by the key, never by the token alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Verify = Callable[[str, bytes, bytes], bool]
"""Whether a signature (last) is right for an algorithm's name and the signed bytes."""

HASHES: dict[str, Callable[..., Any]] = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}
_DIGEST_INFO = {
    "256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "384": bytes.fromhex("3041300d060960864801650304020205000430"),
    "512": bytes.fromhex("3051300d060960864801650304020305000440"),
}


def rsa(modulus: int, exponent: int) -> Verify:
    """RS256, RS384, RS512, PS256, PS384 and PS512."""
    size = (modulus.bit_length() + 7) // 8

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        kind, bits = algorithm[:2], algorithm[2:]
        if kind not in ("RS", "PS") or bits not in HASHES or len(signature) != size:
            return False
        opened = pow(int.from_bytes(signature, "big"), exponent, modulus)
        if kind == "PS":
            return _is_pss(opened, modulus.bit_length() - 1, bits, signed)
        digest: bytes = _DIGEST_INFO[bits] + HASHES[bits](signed).digest()
        padding = b"\xff" * (size - len(digest) - 3)
        return opened.to_bytes(size, "big") == b"\x00\x01" + padding + b"\x00" + digest

    return verify


def _is_pss(opened: int, bits: int, name: str, signed: bytes) -> bool:
    """RFC 8017, 9.1.2, with a salt as long as the hash."""
    make = HASHES[name]
    length = make(b"").digest_size
    if opened.bit_length() > bits:
        return False
    encoded = opened.to_bytes((bits + 7) // 8, "big")
    masked, digest = encoded[: -length - 1], encoded[-length - 1 : -1]
    if encoded[-1:] != b"\xbc" or len(masked) < length + 1:
        return False
    mask = b"".join(make(digest + count.to_bytes(4, "big")).digest() for count in range(len(masked) // length + 1))
    block = int.from_bytes(masked, "big") ^ int.from_bytes(mask[: len(masked)], "big")
    block &= (1 << (bits - 8 * (length + 1))) - 1
    opened_block = block.to_bytes(len(masked), "big")
    padding, salt = opened_block[:-length], opened_block[-length:]
    is_padded = int.from_bytes(padding, "big") == 1
    return is_padded and bool(make(bytes(8) + make(signed).digest() + salt).digest() == digest)


@dataclass(frozen=True, slots=True)
class Curve:
    """y² = x³ + ax + b over the integers modulo `p`; `base` generates a group of prime order `order`."""

    algorithm: str
    bits: str
    p: int
    a: int
    b: int
    order: int
    base: tuple[int, int]

    @property
    def width(self) -> int:
        """The bytes of one coordinate."""
        return (self.p.bit_length() + 7) // 8


def _nist(name: str, bits: str, p: int, b: str, order: str, base: tuple[str, str]) -> Curve:
    return Curve(name, bits, p, p - 3, int(b, 16), int(order, 16), (int(base[0], 16), int(base[1], 16)))


CURVES = {
    "P-256": _nist(
        "ES256",
        "256",
        2**256 - 2**224 + 2**192 + 2**96 - 1,
        "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b",
        "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
        (
            "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
            "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
        ),
    ),
    "P-384": _nist(
        "ES384",
        "384",
        2**384 - 2**128 - 2**96 + 2**32 - 1,
        "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aef",
        "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
        (
            "aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7",
            "3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f",
        ),
    ),
    "P-521": _nist(
        "ES512",
        "512",
        2**521 - 1,
        "0051953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e156193951ec7e937b1652c0bd3bb1bf073573df88"
        "3d2c34f1ef451fd46b503f00",
        "01fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa51868783bf2f966b7fcc0148f709a5d03bb5c9b8"
        "899c47aebb6fb71e91386409",
        (
            "00c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dbaa14b5e77efe75928fe1dc127a2ffa8de3348b3c1"
            "856a429bf97e7e31c2e5bd66",
            "011839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e662c97ee72995ef42640c550b9013fad0761353c7086"
            "a272c24088be94769fd16650",
        ),
    ),
    "secp256k1": Curve(
        "ES256K",
        "256",
        2**256 - 2**32 - 977,
        0,
        7,
        0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
        (
            0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
            0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
        ),
    ),
}

_Jacobian = tuple[int, int, int]
"""A point (X/Z², Y/Z³); Z is 0 at infinity. So no step needs a division."""

_INFINITY = (1, 1, 0)


def is_on_curve(curve: Curve, point: tuple[int, int]) -> bool:
    """Whether a public key is one."""
    x, y = point
    return 0 <= x < curve.p and 0 <= y < curve.p and (y * y - (x * x * x + curve.a * x + curve.b)) % curve.p == 0


def ecdsa(curve: Curve, public: tuple[int, int]) -> Verify:
    """The one algorithm of a curve."""

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        if algorithm != curve.algorithm or len(signature) != 2 * curve.width:
            return False
        r, s = (int.from_bytes(part, "big") for part in (signature[: curve.width], signature[curve.width :]))
        if not (0 < r < curve.order and 0 < s < curve.order):
            return False
        digest = HASHES[curve.bits](signed).digest()
        excess = max(0, 8 * len(digest) - curve.order.bit_length())
        inverse = pow(s, -1, curve.order)
        weights = ((int.from_bytes(digest, "big") >> excess) * inverse % curve.order, r * inverse % curve.order)
        x, _, z = _sum_of(curve, weights, (curve.base, public))
        return z != 0 and x * pow(z, -2, curve.p) % curve.p % curve.order == r

    return verify


def _sum_of(curve: Curve, weights: tuple[int, int], points: tuple[tuple[int, int], tuple[int, int]]) -> _Jacobian:
    """Both points times their weights, added; one doubling per bit serves both."""
    one, other = ((*point, 1) for point in points)
    terms = (_INFINITY, one, other, _add(curve, one, other))
    total: _Jacobian = _INFINITY
    for bit in reversed(range(max(weights).bit_length())):
        total = _doubled(curve, total)
        total = _add(curve, total, terms[(weights[0] >> bit & 1) + 2 * (weights[1] >> bit & 1)])
    return total


def _doubled(curve: Curve, point: _Jacobian) -> _Jacobian:
    x, y, z = point
    p = curve.p
    square = y * y % p
    s = 4 * x * square % p
    m = (3 * x * x + curve.a * pow(z, 4, p)) % p
    new_x = (m * m - 2 * s) % p
    return new_x, (m * (s - new_x) - 8 * square * square) % p, 2 * y * z % p


def _add(curve: Curve, one: _Jacobian, other: _Jacobian) -> _Jacobian:
    if one[2] == 0 or other[2] == 0:
        return other if one[2] == 0 else one
    p = curve.p
    (x1, y1, z1), (x2, y2, z2) = one, other
    square1, square2 = z1 * z1 % p, z2 * z2 % p
    u1, s1 = x1 * square2 % p, y1 * square2 * z2 % p
    h, r = (x2 * square1 - u1) % p, (y2 * square1 * z1 - s1) % p
    if h == 0:
        return _doubled(curve, one) if r == 0 else _INFINITY
    squared = h * h % p
    cubed, v = squared * h % p, u1 * squared % p
    x = (r * r - cubed - 2 * v) % p
    return x, (r * (v - x) - s1 * cubed) % p, h * z1 * z2 % p
