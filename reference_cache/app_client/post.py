"""One POST to the application, with the retries of the official cache.

5xx responses and failed connections are retried: four attempts in all, with a delay of 100 ms that doubles up to one
second, plus jitter. Other responses are final. A request without a usable response raises `AppFailure`, whose reason
becomes that of the error that the client gets.
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
from reference_cache.app_client.url_pattern import canonical, is_allowed
from reference_cache.config import AppEndpoint, reserved_parameters
from reference_cache.credentials import Address
from service_kit.backoff import Backoff
from service_kit.logs import event, logger

log = logger("cache.app")

ATTEMPTS = 4
LONGEST_WAIT_S = 1.0
PREVIEW_CHARACTERS = 512
"""How much of a refused response's body goes into the error, as `bodyPreview`."""

MAX_ANSWER_BYTES = 64 * 1024 * 1024
TIMEOUT_SECONDS = 60.0


_CONNECTION_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade"})
"""Headers that belong to one connection and are never forwarded."""


class AppFailure(Exception):
    """No usable response; `reason` is one of the protocol's: http, parse, timeout, internal."""

    def __init__(self, reason: str, message: str, status: int | None = None, preview: str | None = None) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.status = status
        self.preview = preview

    @property
    def details(self) -> dict[str, Any]:
        """The fields of an error body in addition to reason and message."""
        fields = {"status": self.status, "bodyPreview": self.preview}
        return {name: value for name, value in fields.items() if value is not None}


class _Retry(Exception):
    def __init__(self, failure: AppFailure) -> None:
        super().__init__(failure)
        self.failure = failure


@dataclass(slots=True)
class AppPost:
    """Posts to one endpoint of the application. `variable` is the setting named in errors; times are seconds."""

    session: aiohttp.ClientSession
    endpoint: AppEndpoint
    variable: str
    schema: str
    app_id: str
    timeout: float = TIMEOUT_SECONDS
    backoff: float = 0.1

    async def __call__(self, address: Address, token: str | None, body: object) -> object:
        """Returns the JSON value of the response; raises `AppFailure`. A body of bytes must be JSON text."""
        url = self._url(address)
        headers = self._headers(address, token)
        payload = body if isinstance(body, bytes) else values.dumps(body)
        # Twice the first wait, because jitter takes off up to half of it.
        backoff = Backoff(self.backoff * 2, LONGEST_WAIT_S, jitter=0.5)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._attempt(url, headers, payload)
            except _Retry as retry:
                failure = retry.failure
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
        full = urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(query), ""))
        # A client's URL is requested exactly as it was matched; yarl must not normalise it again.
        return URL(full, encoded=address.is_clients_choice)

    def _clients_url(self, url: str) -> str:
        """The canonical form of a URL that a client chose; raises `AppFailure` if it is not allowed."""
        canonical_url = canonical(url)
        if canonical_url is None or not is_allowed(canonical_url, self.endpoint.urls):
            raise AppFailure("internal", f'URL "{url}" is not allowed by the {self.variable} configuration')
        reserved = reserved_parameters(canonical_url)
        if reserved:
            raise AppFailure("internal", f'URL "{url}" has parameters that the cache sets: {", ".join(reserved)}')
        return canonical_url

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
            raise _Retry(_unreachable(error)) from None
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
    """Log the text of the error, which may name internal addresses; the client gets its type only."""
    event(log, logging.WARNING, "application not reached", why=str(error) or type(error).__name__)
    return AppFailure("internal", f"Fetch from API server threw error: {type(error).__name__}")


def _refused(status: int, text: bytes) -> Exception:
    shown = text.decode("utf-8", "replace")
    preview = shown if len(shown) <= PREVIEW_CHARACTERS else shown[:PREVIEW_CHARACTERS] + "..."
    hint = "; redirects are not followed, name the URL itself" if 300 <= status < 400 else ""
    failure = AppFailure("http", f"Fetch from API server returned non-OK status {status}{hint}", status, preview)
    return _Retry(failure) if 500 <= status < 600 else failure
