"""`changesource tail`: print a stream as it comes, from any endpoint, and with `--validate` judge it.

It is a consumer of the sketch dialect, which gets snapshot and changes on one connection; it never acknowledges, so it
holds nothing back in the endpoint's log. A broken rule is told on standard error, right after its frame; if there was
any the exit code is 1.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import typer
from websockets.exceptions import ConnectionClosed

from changesource_cli.checks.findings import print_finding
from changesource_cli.output import ExitCode, reported
from changesource_cli.statusz import fetch
from changesource_sdk.checking.connecting import STREAM, connected, request_url, stream_url
from changesource_sdk.checking.probe_stream import finding
from changesource_sdk.errors import EndpointError
from protocol.handshake import Handshake
from protocol.redaction import shown_host
from protocol.rules import Checker
from protocol.transcript import Connect, Frame

EPILOG = (
    "Examples:\n\nchangesource tail 127.0.0.1:4810\n\nchangesource tail ws://host:4810 --from start --json --limit 1"
    "\n\nchangesource tail wss://host --validate"
)
APP = "changesource_tail"


def tail(
    url: Annotated[str, typer.Argument(help="Endpoint: host:port, ws://… or wss://…; a key goes in as ?apiKey=…")],
    start: Annotated[
        str, typer.Option("--from", help="Watermark to go on from, 'start' for the whole snapshot, or 'now'.")
    ] = "now",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Stop after so many transactions; 0 never stops.")] = 0,
    validate: Annotated[bool, typer.Option("--validate", help="Tell every broken rule; exit code 1 for any.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every message as it travels, one per line.")] = False,
) -> None:
    """Print the transactions of a stream as they come."""
    judge = Judge(as_json=as_json) if validate else None
    with reported(as_json=as_json):
        asyncio.run(_print_stream(stream_url(url), start, limit, as_json, judge))
        if judge is not None and judge.broken:
            raise typer.Exit(ExitCode.FAILURE)


class Judge:
    """Tells the broken rules of one stream. Frames are counted from 1; `broken` counts what was found."""

    def __init__(self, *, as_json: bool) -> None:
        self.broken = 0
        self._as_json = as_json
        self._frames = 0
        self._checker = Checker()

    def begin(self, request: Handshake) -> None:
        """The stream is asked for with these parameters."""
        self._checker.take(Connect(0, f"{STREAM}?{request.query}"))

    def take(self, text: str) -> None:
        """Judge the next frame."""
        self._frames += 1
        for violation in self._checker.take(Frame(self._frames, "down", text.encode(errors="replace"))):
            self.broken += 1
            print_finding(finding(violation, text.encode(errors="replace")), as_json=self._as_json, to_stderr=True)


async def _print_stream(url: str, start: str, limit: int, as_json: bool, judge: Judge | None) -> None:
    if start == "now":
        start = await asyncio.to_thread(_head, url)
    after = None if start == "start" else start
    if judge is not None:
        judge.begin(handshake(after))
    seen = 0
    async with aclosing(messages(url, after)) as stream:
        async for text in stream:
            message = _loads(text)
            _print_message(message, text, as_json, judge)
            seen += message[0] in ("commit", "rollback")
            if limit and seen >= limit:
                return


def _print_message(message: list[object], text: str, as_json: bool, judge: Judge | None) -> None:
    line = describe(message)
    sys.stdout.write((text if as_json else line) + "\n")
    sys.stdout.flush()
    if judge is not None:
        judge.take(text)
    if line.startswith("reset-required"):
        reason = str(message[1].get("message") or "the stream cannot go on") if isinstance(message[1], dict) else ""
        raise EndpointError("reset-required", reason, fix="--from start")


def _loads(text: str) -> list[object]:
    """A message, or what stands for a frame that is none: it is printed as it is."""
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    return message if isinstance(message, list) and message and isinstance(message[0], str) else [text]


def _head(url: str) -> str:
    try:
        log = fetch(url)["log"]
    except EndpointError as error:
        if error.code != "refused":
            raise
        # An endpoint of another make has no such page: its snapshot is the only place to begin.
        return "start"
    head = log.get("head") if isinstance(log, dict) else None
    # An endpoint whose first snapshot is not taken has no watermark to go on from: wait for that snapshot.
    return head if isinstance(head, str) and isinstance(log, dict) and log.get("snapshot") else "start"


def handshake(after: str | None) -> Handshake:
    """The request for what follows a watermark, or for everything."""
    return Handshake("sketch", APP, 0, last_watermark=after)


async def messages(url: str, after: str | None) -> AsyncGenerator[str, None]:
    """The messages of a stream after a watermark, or from the snapshot on; the endpoint's refusals as our errors."""
    async with connected(request_url(url, handshake(after).query)) as connection:
        try:
            async for message in connection:
                yield message if isinstance(message, str) else message.decode(errors="replace")
        except ConnectionClosed as error:
            raise EndpointError("stream-ended", f"the endpoint closed the stream: {error}", shown_host(url)) from None


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
