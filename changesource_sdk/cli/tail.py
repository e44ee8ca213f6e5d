"""`changesource tail`: print a stream as it comes, from any endpoint.

It is a consumer of the sketch dialect, which gets snapshot and changes on one connection; it never acknowledges, so it
holds nothing back in the endpoint's log.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import typer
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from changesource_sdk.cli.output import reported
from changesource_sdk.cli.statusz import fetch
from changesource_sdk.errors import EndpointError
from protocol.handshake import PATHS

EPILOG = (
    "Examples:\n\nchangesource tail 127.0.0.1:4810\n\nchangesource tail ws://host:4810 --from start --json --limit 1"
)
STREAM = next(iter(PATHS))


def tail(
    url: Annotated[str, typer.Argument(help="Endpoint: host:port, ws://… or wss://…; a key goes in as ?apiKey=…")],
    start: Annotated[
        str, typer.Option("--from", help="Watermark to go on from, 'start' for the whole snapshot, or 'now'.")
    ] = "now",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Stop after so many transactions; 0 never stops.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print every message as it travels, one per line.")] = False,
) -> None:
    """Print the transactions of a stream as they come."""
    with reported(as_json=as_json):
        asyncio.run(_print_stream(stream_url(url), start, limit, as_json))


def stream_url(text: str) -> str:
    """The stream's URL from whatever names an endpoint: a bare host:port, another scheme, no path."""
    parts = urlsplit(text if "://" in text else f"ws://{text}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = STREAM if parts.path in ("", "/") else parts.path
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


async def _print_stream(url: str, start: str, limit: int, as_json: bool) -> None:
    if start == "now":
        start = await asyncio.to_thread(_head, url)
    seen = 0
    async for text in messages(url, None if start == "start" else start):
        message = json.loads(text)
        line = text if as_json else describe(message)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        seen += message[0] in ("commit", "rollback")
        if message[0] == "control" and message[1].get("tag") == "reset-required":
            raise EndpointError(
                "reset-required", message[1].get("message", "the stream cannot go on"), fix="--from start"
            )
        if limit and seen >= limit:
            return


def _head(url: str) -> str:
    log = fetch(url)["log"]
    head = log.get("head") if isinstance(log, dict) else None
    # An endpoint whose first snapshot is not taken has no watermark to go on from: wait for that snapshot.
    return head if isinstance(head, str) and isinstance(log, dict) and log.get("snapshot") else "start"


async def messages(url: str, after: str | None) -> AsyncIterator[str]:
    """The messages of a stream after a watermark, or from the snapshot on; the endpoint's refusals as our errors."""
    parts = urlsplit(url)
    query = [*parse_qsl(parts.query), ("shardID", "changesource_tail_0")]
    if after is not None:
        query.append(("lastWatermark", after))
    target = urlunsplit(parts._replace(query=urlencode(query)))
    try:
        async with connect(target, max_size=None, compression=None) as connection:
            async for message in connection:
                yield message if isinstance(message, str) else message.decode()
    except InvalidStatus as error:
        said = bytes(error.response.body or b"").decode(errors="replace").strip()
        raise EndpointError(
            "refused", f"the endpoint answered {error.response.status_code}: {said}", parts.netloc, "correct the URL"
        ) from None
    except (OSError, InvalidHandshake) as error:
        raise EndpointError(
            "unreachable", f"cannot connect: {error}", parts.netloc, "is `changesource serve` running there?"
        ) from None
    except ConnectionClosed as error:
        raise EndpointError("stream-ended", f"the endpoint closed the stream: {error}", parts.netloc) from None


def describe(message: list[object]) -> str:
    """One message as a line for people."""
    payload = message[1] if len(message) > 1 and isinstance(message[1], dict) else {}
    third = message[2] if len(message) > 2 and isinstance(message[2], dict) else {}
    match message[0]:
        case "data":
            return f"  {payload.get('tag')} {_target(payload)}{_values(payload)}"
        case "begin":
            return f"begin {third.get('commitWatermark')}"
        case "control":
            return f"{payload.get('tag')} {payload.get('message') or payload.get('latestUpstreamWatermark') or ''}"
        case name:
            return f"{name} {third.get('watermark', '')}"


def _target(payload: dict[str, object]) -> str:
    named = [payload[key] for key in ("relation", "spec", "table", "id", "old") if key in payload]
    named += list(payload["relations"]) if isinstance(payload.get("relations"), list) else []  # type: ignore[call-overload]
    return ", ".join(_name(item) for item in named if isinstance(item, dict))


def _name(item: dict[str, object]) -> str:
    name = str(item.get("tableName") or item.get("name"))
    return name if item.get("schema") == "public" else f"{item.get('schema')}.{name}"


def _values(payload: dict[str, object]) -> str:
    shown = [payload[key] for key in ("key", "new", "column") if payload.get(key) is not None]
    return "".join(" " + json.dumps(value, ensure_ascii=False) for value in shown)
