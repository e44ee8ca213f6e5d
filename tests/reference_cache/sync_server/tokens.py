"""JSON Web Tokens made for tests; keys are fixed so that runs are alike."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(algorithm: str, claims: dict[str, Any], **header: Any) -> str:
    return f"{b64(json.dumps({'alg': algorithm, **header}).encode())}.{b64(json.dumps(claims).encode())}"


def hs256(secret: str, *, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
    return _signed(secret, unsigned("HS256", claims, **(header or {})))


def hs256_of(secret: str, payload: bytes) -> str:
    """A token with any payload at all."""
    return _signed(secret, f"{b64(json.dumps({'alg': 'HS256'}).encode())}.{b64(payload)}")


def _signed(secret: str, signed: str) -> str:
    return f"{signed}.{b64(hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest())}"
