"""The plain HTTP pages on the stream's port: `/healthz`, `/readyz`, `/metrics`, `/statusz`, `/seeds/v0/claim`.

Health and readiness are for load balancers and open to anyone; metrics and status name consumers and errors, and a
claim is the beginning of a replica, so they ask for an API key or a client certificate where they are configured.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from changesource_sdk.endpoint import seed_claims
from changesource_sdk.endpoint.access.gate import Gate, Incoming, Refusal
from changesource_sdk.endpoint.seed_claims import SeedClaims
from changesource_sdk.endpoint.status import Document
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.observe.metrics import CONTENT_TYPE, EndpointMetrics
from service_kit.pages import Page


class EndpointPages:
    """Answers the paths it knows. Invariant: only a claim changes anything but gauges: the record of consumers."""

    def __init__(
        self,
        metrics: EndpointMetrics,
        gate: Gate,
        is_ready: Callable[[], bool],
        status: Callable[[], Awaitable[Document]],
        claims: SeedClaims,
    ) -> None:
        self._metrics = metrics
        self._gate = gate
        self._is_ready = is_ready
        self._status = status
        self._claims = claims
        self._routes: Mapping[str, tuple[bool, Callable[[], Awaitable[Page]]]] = {
            "/healthz": (False, self._healthz),
            "/readyz": (False, self._readyz),
            "/metrics": (True, self._metricsz),
            "/statusz": (True, self._statusz),
        }

    async def answer(self, incoming: Incoming) -> Page | Refusal | None:
        """The page of a request, the answer that refuses it, or None if it is none of ours."""
        path, _, _ = incoming.target.partition("?")
        if path == seed_claims.PATH:
            return self._gate.refuse_page(incoming) or await self._claims.answer(incoming.target)
        if path not in self._routes:
            return None
        guarded, page = self._routes[path]
        return (self._gate.refuse_page(incoming) if guarded else None) or await page()

    async def _healthz(self) -> Page:
        return Page.text(200, "ok")

    async def _readyz(self) -> Page:
        return Page.text(200, "ready") if self._is_ready() else Page.text(503, "no snapshot to serve yet")

    async def _metricsz(self) -> Page:
        # What was counted here is worth reading even while the log is out of reach.
        with suppress(ChangesourceError):
            await self._status()
        return Page(200, CONTENT_TYPE, self._metrics.render())

    async def _statusz(self) -> Page:
        try:
            document = await self._status()
        except ChangesourceError as error:
            return Page.json(503, {"error": error.as_json()})
        return Page.json(200, document)
