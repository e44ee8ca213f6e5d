"""Reading a stream as text: a consumer of the sketch dialect, which gets snapshot and changes on one connection.

It never acknowledges, so the endpoint does not keep its log for it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from websockets.exceptions import ConnectionClosed

from changesource_sdk.checking.connecting import connected, request_url
from changesource_sdk.errors import EndpointError
from protocol.redaction import shown_host
from protocol.stream.handshake import Handshake

APP = "changesource_tail"


def stream_request(after: str | None) -> Handshake:
    """Return the parameters that request what follows a watermark, or everything if it is None."""
    return Handshake("sketch", APP, 0, last_watermark=after)


async def messages(url: str, after: str | None) -> AsyncGenerator[str, None]:
    """Yield the messages that follow a watermark, or all from the snapshot on if it is None.

    Raises `EndpointError` if the endpoint refuses the request or closes the stream.
    """
    async with connected(request_url(url, stream_request(after).query)) as connection:
        try:
            async for message in connection:
                yield message if isinstance(message, str) else message.decode(errors="replace")
        except ConnectionClosed as error:
            raise EndpointError("stream-ended", f"the endpoint closed the stream: {error}", shown_host(url)) from None


def describe_message(message: list[object]) -> str:
    """Return one decoded message as a line for people."""
    payload = message[1] if len(message) > 1 and isinstance(message[1], dict) else {}
    watermarks = message[2] if len(message) > 2 and isinstance(message[2], dict) else {}
    match message[0]:
        case "data":
            return f"  {payload.get('tag')} {_target(payload)}{_values(payload)}"
        case "begin":
            return f"begin {watermarks.get('commitWatermark')}"
        case "control":
            return f"{payload.get('tag')} {payload.get('message') or payload.get('latestUpstreamWatermark') or ''}"
        case name:
            return f"{name} {watermarks.get('watermark', '')}"


def _target(payload: dict[str, object]) -> str:
    targets = [payload[key] for key in ("relation", "spec", "table", "id", "old") if key in payload]
    if isinstance(relations := payload.get("relations"), list):
        targets += relations
    return ", ".join(_name(target) for target in targets if isinstance(target, dict))


def _name(target: dict[str, object]) -> str:
    name = str(target.get("tableName") or target.get("name"))
    return name if target.get("schema") == "public" else f"{target.get('schema')}.{name}"


def _values(payload: dict[str, object]) -> str:
    values = [payload[key] for key in ("key", "new", "column") if payload.get(key) is not None]
    return "".join(" " + json.dumps(value, ensure_ascii=False) for value in values)
