"""One POST to the application, with the patience the official cache has.

5xx answers and connections that fail are tried again, four attempts in all, 100 ms doubling to at most a second with
some jitter between them; other answers are final. What cannot be had is an `AppFailure`, whose reason the callers
turn into the error their client is told.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import aiohttp
from yarl import URL

from protocol import values
from protocol.errors import CodecError
from reference_cache.app_client.credentials import Address
from reference_cache.app_client.url_pattern import canonical, is_allowed
from reference_cache.config import AppEndpoint, reserved_parameters
from service_kit.backoff import Backoff
from service_kit.logs import event, logger

log = logger("cache.app")

ATTEMPTS = 4
LONGEST_WAIT_S = 1.0
PREVIEW_CHARACTERS = 512
MAX_ANSWER_BYTES = 64 * 1024 * 1024
TIMEOUT_SECONDS = 60.0


_CONNECTION_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade"})
"""Headers that belong to one connection and are never passed on."""


class AppFailure(Exception):
    """The application gave no usable answer; `reason` is the protocol's: http, parse, timeout or internal."""

    def __init__(self, reason: str, message: str, status: int | None = None, preview: str | None = None) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.status = status
        self.preview = preview

    @property
    def details(self) -> dict[str, Any]:
        """The fields an error body has besides reason and message."""
        found = {"status": self.status, "bodyPreview": self.preview}
        return {name: value for name, value in found.items() if value is not None}


class _TryAgain(Exception):
    def __init__(self, failure: AppFailure) -> None:
        super().__init__(failure)
        self.failure = failure


@dataclass(slots=True)
class AppPost:
    """Posts to one endpoint of the application. `variable` is the setting to name when a URL is not allowed."""

    session: aiohttp.ClientSession
    endpoint: AppEndpoint
    variable: str
    schema: str
    app_id: str
    timeout: float = TIMEOUT_SECONDS
    backoff: float = 0.1

    async def __call__(self, address: Address, token: str | None, body: object) -> object:
        """The JSON value of the answer; raises `AppFailure`. A body of bytes is JSON text already."""
        url = self._url(address)
        headers = self._headers(address, token)
        payload = body if isinstance(body, bytes) else values.dumps(body)
        # Twice the first wait, of which jitter takes up to half.
        backoff = Backoff(self.backoff * 2, LONGEST_WAIT_S, jitter=0.5)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._attempt(url, headers, payload)
            except _TryAgain as again:
                failure = again.failure
                event(log, logging.WARNING, "application failed", url=url, attempt=attempt, why=failure.message)
                if attempt == ATTEMPTS:
                    raise failure from None
                await asyncio.sleep(backoff.seconds())
        raise AssertionError("the last attempt returns or raises")

    def _url(self, address: Address) -> URL:
        if address.url is None:
            raise AppFailure("internal", f"{self.variable} is not set")
        url = self._clients_url(address.url) if address.is_clients_choice else address.url
        parts = urlsplit(url)
        query = [*parse_qsl(parts.query, keep_blank_values=True), ("schema", self.schema), ("appID", self.app_id)]
        made = urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(query), ""))
        return URL(made, encoded=address.is_clients_choice)  # a client's is requested as it was matched

    def _clients_url(self, url: str) -> str:
        """A URL that a client named, in the spelling that was matched with the patterns."""
        spelled = canonical(url)
        if spelled is None or not is_allowed(spelled, self.endpoint.urls):
            raise AppFailure("internal", f'URL "{url}" is not allowed by the {self.variable} configuration')
        taken = reserved_parameters(spelled)
        if taken:
            raise AppFailure("internal", f'URL "{url}" has parameters that the cache sets: {", ".join(taken)}')
        return spelled

    def _headers(self, address: Address, token: str | None) -> dict[str, str]:
        own = {"Content-Type": "application/json"}
        if self.endpoint.api_key:
            own["X-Api-Key"] = self.endpoint.api_key
        if token:
            own["Authorization"] = f"Bearer {token}"
        reserved = _CONNECTION_HEADERS | {name.lower() for name in own}
        return {name: value for name, value in address.headers if name.lower() not in reserved} | own

    async def _attempt(self, url: URL, headers: dict[str, str], payload: bytes) -> object:
        try:
            async with asyncio.timeout(self.timeout):
                # A redirect would carry the API key and the user's token to wherever it points.
                async with self.session.post(url, data=payload, headers=headers, allow_redirects=False) as answer:
                    text = await _read(answer)
        except TimeoutError:
            raise AppFailure("timeout", f"the application did not answer in {self.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _TryAgain(_unreachable(error)) from None
        except ValueError as error:
            raise _unreachable(error) from None
        if not 200 <= answer.status < 300:
            raise _refused(answer.status, text)
        try:
            return values.loads(text)
        except CodecError as error:
            raise AppFailure("parse", f"Failed to parse response from API server: {error.message}") from None


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    text = await answer.content.read(MAX_ANSWER_BYTES + 1)
    while len(text) <= MAX_ANSWER_BYTES and (more := await answer.content.read(MAX_ANSWER_BYTES + 1 - len(text))):
        text += more
    if len(text) > MAX_ANSWER_BYTES:
        raise AppFailure("parse", f"Failed to parse response from API server: more than {MAX_ANSWER_BYTES} bytes")
    return text


def _unreachable(error: Exception) -> AppFailure:
    """The text has addresses of the inside; it is for the log."""
    event(log, logging.WARNING, "application not reached", why=str(error) or type(error).__name__)
    return AppFailure("internal", f"Fetch from API server threw error: {type(error).__name__}")


def _refused(status: int, text: bytes) -> Exception:
    shown = text.decode("utf-8", "replace")
    preview = shown if len(shown) <= PREVIEW_CHARACTERS else shown[:PREVIEW_CHARACTERS] + "..."
    hint = "; redirects are not followed, name the URL itself" if 300 <= status < 400 else ""
    failure = AppFailure("http", f"Fetch from API server returned non-OK status {status}{hint}", status, preview)
    return _TryAgain(failure) if 500 <= status < 600 else failure
