"""Ed25519 signatures, checked as RFC 8032 says (5.1.7).

Points are kept as (X, Y, Z, T) with x = X/Z, y = Y/Z and xy = T/Z, so that adding needs no division.
"""

from __future__ import annotations

import hashlib

from reference_cache.sync_server.signatures import Verify

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

_Point = tuple[int, int, int, int]
_ZERO: _Point = (0, 1, 1, 0)


def ed25519(public: bytes) -> Verify | None:
    """The algorithm `EdDSA` (or, by its newer name, `Ed25519`); None if the bytes are no public key."""
    key = _point(public)
    if key is None:
        return None
    minus_key = (-key[0] % _P, key[1], key[2], -key[3] % _P)

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        if algorithm not in ("EdDSA", "Ed25519") or len(signature) != 64:
            return False
        r, s = _point(signature[:32]), int.from_bytes(signature[32:], "little")
        if r is None or s >= _ORDER:
            return False
        digest = hashlib.sha512(signature[:32] + public + signed).digest()
        weight = int.from_bytes(digest, "little") % _ORDER
        return _is_same(_add(_times(s, _BASE), _times(weight, minus_key)), r)

    return verify


def _point(text: bytes) -> _Point | None:
    """The point whose y these 32 bytes are, with the sign of x in the last bit."""
    if len(text) != 32:
        return None
    number = int.from_bytes(text, "little")
    y, sign = number & (2**255 - 1), number >> 255
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _add(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(count: int, point: _Point) -> _Point:
    total = _ZERO
    while count:
        if count & 1:
            total = _add(total, point)
        point = _add(point, point)
        count >>= 1
    return total


def _is_same(one: _Point, other: _Point) -> bool:
    return (one[0] * other[2] - other[0] * one[2]) % _P == 0 and (one[1] * other[2] - other[1] * one[2]) % _P == 0


def _base() -> _Point:
    found = _point((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
    assert found is not None
    return found


_BASE = _base()
