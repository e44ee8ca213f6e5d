"""Asking a running endpoint how it stands: `/statusz` over HTTP."""

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


def fetch(url: str, path: str = "/statusz") -> dict[str, object]:
    """The JSON document an endpoint serves at `path`; a key goes in as for a stream. Raises `EndpointError`."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    query = f"?{parts.query}" if parts.query else ""
    hide_setting("url", url)
    where = shown_host(url)
    # No proxy: an endpoint is a neighbour, and a proxy from the environment would answer in its place.
    opener = build_opener(ProxyHandler({}))
    try:
        userinfo, _, host = parts.netloc.rpartition("@")
        headers = {"Authorization": f"Basic {b64encode(unquote_to_bytes(userinfo)).decode()}"} if userinfo else {}
        request = Request(f"{scheme}://{host}{path}{query}", headers=headers)
        with opener.open(request, timeout=TIMEOUT) as answer:
            document = json.load(answer)
    except HTTPError as error:
        said = error.read(500).decode(errors="replace").strip()
        raise EndpointError("refused", f"{path} answered {error.code}: {said}", where) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise EndpointError(
            "unreachable", f"cannot ask {path}: {error}", where, "is `changesource serve` running there?"
        ) from None
    if not isinstance(document, dict):
        raise EndpointError("refused", f"{path} is not an endpoint's answer", where)
    return document
