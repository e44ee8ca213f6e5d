"""Plain HTTP pages on the port of the sync socket: `/`, `/keepalive`, `/healthz`, `/readyz`, `/metrics`, `/statusz`.

`/` is what zero-cache's health checks ask for: 200 once clients can be served. Metrics and status show users and
queries, so they require the admin password (HTTP Basic, any user name); if none is set, only this machine gets them.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any

from reference_cache.sync_server.metrics import CONTENT_TYPE, CacheMetrics
from service_kit.pages import Page, basic_password


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
                return Page.text(200, "OK") if self._is_ready() else Page.text(503, "not ready yet")
            case "/healthz" | "/keepalive":
                return Page.text(200, "OK")
            case "/metrics":
                return self._refusal(authorization, is_local) or self._rendered()
            case "/statusz":
                return self._refusal(authorization, is_local) or Page.json(200, self._status())
        return None

    def _refusal(self, authorization: str | None, is_local: bool) -> Page | None:
        if self._password is None:
            return None if is_local else Page.text(403, "set ZERO_ADMIN_PASSWORD to see this page from elsewhere")
        password = basic_password(authorization)
        is_right = password is not None and hmac.compare_digest(password, self._password.encode())
        return None if is_right else Page.text(401, "give the admin password")

    def _rendered(self) -> Page:
        self._status()
        return Page(200, CONTENT_TYPE, self._metrics.render())
