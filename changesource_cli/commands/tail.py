"""`changesource tail`: print the messages of any endpoint's stream, and with `--validate` check them.

A broken rule is printed on standard error, right after its message; if there was any, the exit code is 1.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from typing import Annotated

import typer

from changesource_cli.checks.findings import print_finding
from changesource_cli.output import ExitCode, reported
from changesource_sdk.checking.connecting import STREAM, stream_url
from changesource_sdk.checking.probe_stream import finding
from changesource_sdk.checking.read_stream import describe_message, messages, stream_request
from changesource_sdk.endpoint.fetch_status import fetch_status
from changesource_sdk.errors import EndpointError
from protocol.rules import Checker
from protocol.stream.handshake import Handshake
from protocol.stream.transcript import Connect, Frame

EPILOG = (
    "Examples:\n\nchangesource tail 127.0.0.1:4810\n\nchangesource tail ws://host:4810 --from start --json --limit 1"
    "\n\nchangesource tail wss://host --validate"
)


def tail(
    url: Annotated[str, typer.Argument(help="Endpoint: host:port, ws://… or wss://…; a key goes in as ?apiKey=…")],
    start: Annotated[
        str, typer.Option("--from", help="Watermark to continue from, 'start' for the whole snapshot, or 'now'.")
    ] = "now",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Stop after so many transactions; 0 never stops.")] = 0,
    validate: Annotated[bool, typer.Option("--validate", help="Print every broken rule; exit code 1 if any.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every message as it is sent, one per line.")] = False,
) -> None:
    """Print the transactions of a stream as they come."""
    validator = StreamValidator(as_json=as_json) if validate else None
    with reported(as_json=as_json):
        asyncio.run(_print_stream(stream_url(url), start, limit, as_json, validator))
        if validator is not None and validator.broken:
            raise typer.Exit(ExitCode.FAILURE)


class StreamValidator:
    """Checks the messages of one stream against the rules of the protocol and prints what is broken."""

    def __init__(self, *, as_json: bool) -> None:
        # Broken rules so far; `take` counts, the command reads it at the end.
        self.broken = 0
        # Number of the last message, counted from 1; `take` counts.
        self._frames = 0
        self._as_json = as_json
        self._checker = Checker()

    def begin(self, request: Handshake) -> None:
        """Note the parameters of the request; called once, before the first message."""
        self._checker.take(Connect(0, f"{STREAM}?{request.query}"))

    def take(self, text: str) -> None:
        """Check the next message."""
        self._frames += 1
        for violation in self._checker.take(Frame(self._frames, "down", text.encode(errors="replace"))):
            self.broken += 1
            print_finding(finding(violation, text.encode(errors="replace")), as_json=self._as_json, to_stderr=True)


async def _print_stream(url: str, start: str, limit: int, as_json: bool, validator: StreamValidator | None) -> None:
    if start == "now":
        start = await asyncio.to_thread(_head, url)
    after = None if start == "start" else start
    if validator is not None:
        validator.begin(stream_request(after))
    transactions = 0
    async with aclosing(messages(url, after)) as stream:
        async for text in stream:
            message = _loads(text)
            _print_message(message, text, as_json, validator)
            transactions += message[0] in ("commit", "rollback")
            if limit and transactions >= limit:
                return


def _print_message(message: list[object], text: str, as_json: bool, validator: StreamValidator | None) -> None:
    line = describe_message(message)
    sys.stdout.write((text if as_json else line) + "\n")
    sys.stdout.flush()
    if validator is not None:
        validator.take(text)
    if line.startswith("reset-required"):
        reason = str(message[1].get("message") or "the stream cannot continue") if isinstance(message[1], dict) else ""
        raise EndpointError("reset-required", reason, fix="--from start")


def _loads(text: str) -> list[object]:
    """Decode a message; text that is none becomes a message of only itself, so that it is printed unchanged."""
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    return message if isinstance(message, list) and message and isinstance(message[0], str) else [text]


def _head(url: str) -> str:
    """Return the watermark to start from for "now": the log's head, or "start" if it is not known."""
    try:
        log = fetch_status(url)["log"]
    except EndpointError as error:
        if error.code != "refused":
            raise
        # Endpoints of other implementations have no /statusz: start with the snapshot.
        return "start"
    head = log.get("head") if isinstance(log, dict) else None
    # Before the first snapshot there is no watermark to continue from: wait for that snapshot.
    return head if isinstance(head, str) and isinstance(log, dict) and log.get("snapshot") else "start"
