"""JSON Web Tokens made for tests; keys are fixed so that runs are alike."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(algorithm: str, claims: dict[str, Any]) -> str:
    return f"{b64(json.dumps({'alg': algorithm}).encode())}.{b64(json.dumps(claims).encode())}"


def hs256(secret: str, **claims: Any) -> str:
    signed = unsigned("HS256", claims)
    return f"{signed}.{b64(hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest())}"
