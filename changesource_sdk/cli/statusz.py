"""Asking a running endpoint how it stands: `/statusz` over HTTP."""

from __future__ import annotations

import json
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from changesource_sdk.errors import EndpointError

TIMEOUT = 15.0


def fetch(url: str, path: str = "/statusz") -> dict[str, object]:
    """The JSON document an endpoint serves at `path`. Raises `EndpointError`."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    query = f"?{parts.query}" if parts.query else ""
    # No proxy: an endpoint is a neighbour, and a proxy from the environment would answer in its place.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(f"{scheme}://{parts.netloc}{path}{query}", timeout=TIMEOUT) as answer:
            document = json.load(answer)
    except HTTPError as error:
        said = error.read(500).decode(errors="replace").strip()
        raise EndpointError("refused", f"{path} answered {error.code}: {said}", parts.netloc) from None
    except (URLError, OSError, ValueError) as error:
        raise EndpointError(
            "unreachable", f"cannot ask {path}: {error}", parts.netloc, "is `changesource serve` running there?"
        ) from None
    if not isinstance(document, dict):
        raise EndpointError("refused", f"{path} is not an endpoint's answer", parts.netloc)
    return document
