"""The plain HTTP pages of a service that otherwise speaks WebSocket: its answers, as `websockets` wants them."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.http11 import Response


@dataclass(frozen=True, slots=True)
class Page:
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes

    @classmethod
    def text(cls, status: int, text: str) -> Page:
        """A line of text."""
        return cls(status, "text/plain; charset=utf-8", text.encode(errors="replace") + b"\n")

    @classmethod
    def json(cls, status: int, document: object) -> Page:
        """A JSON document; a value that is not JSON is written as text."""
        body = json.dumps(document, ensure_ascii=False, default=str).encode() + b"\n"
        return cls(status, "application/json", body)


def response(page: Page, realm: str | None = None) -> Response:
    """The answer for `process_request`; with a `realm`, a 401 asks for a user and password (HTTP Basic)."""
    headers = Headers()
    headers["Content-Type"] = page.content_type
    headers["Content-Length"] = str(len(page.body))
    headers["Connection"] = "close"
    if realm is not None and page.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = f'Basic realm="{realm}"'
    return Response(page.status, HTTPStatus(page.status).phrase, headers, page.body)


def basic_password(authorization: str | None) -> bytes | None:
    """The password in an `Authorization` header of HTTP Basic; None if it has none."""
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(credentials.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return None
