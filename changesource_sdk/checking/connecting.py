"""Opening a stream at any endpoint: from a host name or URL to a connection, with refusals as `EndpointError`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from changesource_sdk.errors import EndpointError
from protocol.redaction import hide_setting, shown_host
from protocol.stream.handshake import PATHS

STREAM = next(iter(PATHS))
OPEN_SECONDS = 10.0
CLOSE_SECONDS = 0.2
"""Short: before a busy stream answers the close, all that it still sends would have to be read."""


class Refused(EndpointError):
    """The endpoint answered the request with an HTTP status instead of a stream."""

    def __init__(self, status: int, body: str, where: str) -> None:
        super().__init__("refused", f"the endpoint answered {status}: {body}", where, "correct the URL")
        self.status = status


def stream_url(text: str) -> str:
    """The stream's URL of an endpoint, from a bare host:port, a URL of another scheme, or one without a path."""
    hide_setting("url", text)
    parts = urlsplit(text if "://" in text else f"ws://{text}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = STREAM if parts.path in ("", "/") else parts.path
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def request_url(url: str, query: str) -> str:
    """The URL of a request: the stream's, with these parameters after its own."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, query)))))


@asynccontextmanager
async def connected(url: str, seconds: float = OPEN_SECONDS) -> AsyncIterator[ClientConnection]:
    """A connection for the length of a block. Raises `Refused`, or `EndpointError` without an answer in time."""
    where = shown_host(url)
    try:
        # No proxy: the endpoint is on the same network, and a proxy from the environment would answer instead of it.
        connection = await connect(
            url, max_size=None, compression=None, proxy=None, open_timeout=seconds, close_timeout=CLOSE_SECONDS
        )
    except InvalidStatus as error:
        body = bytes(error.response.body or b"").decode(errors="replace").strip()
        raise Refused(error.response.status_code, body, where) from None
    except (OSError, InvalidHandshake, InvalidURI, TimeoutError, ValueError) as error:
        reason = f"nothing for {seconds:g} s" if isinstance(error, TimeoutError) else error
        raise EndpointError(
            "unreachable", f"cannot connect: {reason}", where, "is `changesource serve` running there?"
        ) from None
    async with connection:
        yield connection
