"""`/statusz` of a running endpoint or cache, read over HTTP."""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from changesource_sdk.errors import EndpointError
from protocol.redaction import hide_setting, shown_host

TIMEOUT = 15.0
"""Seconds for the whole request."""
_MOST_ERROR_BYTES = 64 * 1024


def fetch_status(url: str, path: str = "/statusz") -> dict[str, object]:
    """Return the JSON document at `path`. Blocking.

    `url` is host:port, or any http or ws URL; an API key is given as for a stream. Raises `EndpointError` with the
    code `refused` for an HTTP error and `unreachable` if there is no answer.
    """
    status, body = fetch(url, path)
    if status >= 400:
        text = body[:500].decode(errors="replace").strip()
        raise EndpointError("refused", f"{path} answered {status}: {text}", shown_host(url))
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise EndpointError("refused", f"{path} is not an endpoint's answer", shown_host(url))
    return document


def fetch(url: str, path: str, parameters: str = "") -> tuple[int, bytes]:
    """Return status and body of the answer, whatever the status; `parameters` are added to the URL's query. Blocking.

    Raises `EndpointError` with the code `unreachable` if there is no answer.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    query = "&".join(filter(None, (parts.query, parameters)))
    hide_setting("url", url)
    where = shown_host(url)
    # No proxy: endpoints are local or in the same network, and a proxy from the environment would answer instead.
    opener = build_opener(ProxyHandler({}))
    try:
        userinfo, _, host = parts.netloc.rpartition("@")
        headers = {"Authorization": f"Basic {b64encode(unquote_to_bytes(userinfo)).decode()}"} if userinfo else {}
        request = Request(f"{scheme}://{host}{path}{'?' if query else ''}{query}", headers=headers)
        with opener.open(request, timeout=TIMEOUT) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, error.read(_MOST_ERROR_BYTES)
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise EndpointError(
            "unreachable", f"cannot read {path}: {error}", where, "is `changesource serve` running there?"
        ) from None
