"""Claims a seed at a running endpoint, over HTTP (`seed_claims`)."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from changesource_sdk.endpoint.fetch_status import fetch
from changesource_sdk.endpoint.seed_claims import PATH
from changesource_sdk.errors import EndpointError, StateError
from protocol.redaction import shown_host
from protocol.watermark import is_valid


def claim_at(url: str, app_id: str, shard: int, watermark: str, *, only_check: bool = False) -> str:
    """Return a new replica version for a copy of a seed; "" with `only_check`. Blocking.

    Raises `StateError` if the log does not continue the seed, `EndpointError` if the endpoint refuses or is away.
    """
    parameters = {"appID": app_id, "shardNum": str(shard), "watermark": watermark}
    status, body = fetch(url, PATH, urlencode(parameters | ({"check": "1"} if only_check else {})))
    text = body[:500].decode(errors="replace").strip()
    try:
        document = json.loads(body)
        if status == 200:
            version = document["replicaVersion"]
            if only_check and version is None:
                return ""
            if isinstance(version, str) and is_valid(version):
                return version
        elif isinstance(error := document["error"], dict):
            raise StateError(str(error["code"]), str(error["message"]), str(error["where"]), str(error["fix"]))
    except (ValueError, KeyError, TypeError):
        pass
    fix = "is it an endpoint of this release, and is the key right?"
    raise EndpointError("refused", f"{PATH} answered {status}: {text}", shown_host(url), fix)
