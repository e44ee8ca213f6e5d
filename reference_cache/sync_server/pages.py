"""The plain HTTP pages beside the sync socket: `/`, `/keepalive`, `/healthz`, `/readyz`, `/metrics`, `/statusz`.

`/` is what zero-cache's health checks ask for: 200 once clients can be served. Metrics and status tell of users and
queries, so they want the admin password (HTTP Basic, any user name); where none is set, only this machine sees them.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reference_cache.sync_server.metrics import CONTENT_TYPE, CacheMetrics

_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes


class Pages:
    """Answers the paths it knows. Invariant: answering changes nothing but gauges."""

    def __init__(
        self,
        metrics: CacheMetrics,
        password: str | None,
        is_ready: Callable[[], bool],
        status: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._metrics = metrics
        self._password = password
        self._is_ready = is_ready
        self._status = status

    def answer(self, target: str, authorization: str | None, *, is_local: bool) -> Page | None:
        """The page of a request target, or None if it is none of ours. `is_local`: the request comes from here."""
        match target.partition("?")[0]:
            case "/" | "/readyz":
                return Page(200, _TEXT, b"OK\n") if self._is_ready() else Page(503, _TEXT, b"not ready yet\n")
            case "/healthz" | "/keepalive":
                return Page(200, _TEXT, b"OK\n")
            case "/metrics":
                return self._guarded(authorization, is_local, CONTENT_TYPE, self._rendered)
            case "/statusz":
                return self._guarded(authorization, is_local, "application/json", self._document)
        return None

    def _guarded(
        self, authorization: str | None, is_local: bool, content_type: str, render: Callable[[], bytes]
    ) -> Page:
        if self._password is None and not is_local:
            return Page(403, _TEXT, b"set ZERO_ADMIN_PASSWORD to see this page from elsewhere\n")
        if self._password is not None and not _has_password(authorization, self._password):
            return Page(401, _TEXT, b"give the admin password\n")
        return Page(200, content_type, render())

    def _rendered(self) -> bytes:
        self._status()
        return self._metrics.render()

    def _document(self) -> bytes:
        return json.dumps(self._status(), ensure_ascii=False, default=str).encode() + b"\n"


def _has_password(authorization: str | None, password: str) -> bool:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        given = base64.b64decode(encoded, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(given, password.encode())
