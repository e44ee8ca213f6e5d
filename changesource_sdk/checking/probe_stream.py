"""One connection of the check: every frame is checked on arrival, transactions are collected whole, acks are sent.

It is a consumer that never gives up: where zero-cache would close the connection, it notes the frame and reads the next
one, so that one run reports everything. Contract: `next` returns a message, or None for a malformed frame; it raises
`StreamClosed` if the connection was closed and `Silent` if nothing arrived in time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from changesource_sdk.checking.connecting import STREAM, connected, request_url
from changesource_sdk.checking.verdict import SHOWN_CHARACTERS, Finding
from protocol import codec
from protocol.changes import Change
from protocol.codec import AnyDownstream, AnyUpstream
from protocol.messages import Ack, Begin, Commit, Data, ResetRequired, Rollback, Status, StatusAck
from protocol.rules import Checker, Violation
from protocol.stream import transcript
from protocol.stream.handshake import Handshake
from protocol.stream.transcript import Connect, Direction, Frame

READ_SECONDS = 0.02

Note = Callable[[Finding], None]


class StreamClosed(Exception):
    """The endpoint closed the connection."""


class Silent(Exception):
    """Nothing arrived in time."""


class ResetReceived(Exception):
    """The endpoint answered reset-required."""


@dataclass(frozen=True, slots=True)
class SeenTransaction:
    """A transaction as received; equal digests mean equal changes."""

    watermark: str
    changes: tuple[Change, ...]
    digest: str


class FrameLog:
    """Numbers the frames of a whole check, over all its connections, and passes each line to `keep`."""

    def __init__(self, keep: Callable[[bytes], None] = lambda line: None) -> None:
        # Lines so far; written by `connect` and `frame`.
        self.count = 0
        self._keep = keep

    def connect(self, target: str) -> Connect:
        """A connection, as the next line."""
        self._add(transcript.connect_line(target))
        return Connect(self.count, target)

    def frame(self, direction: Direction, text: bytes) -> Frame:
        """A frame, as the next line."""
        self._add(transcript.frame_line(direction, text))
        return Frame(self.count, direction, text)

    def _add(self, line: bytes) -> None:
        self.count += 1
        self._keep(line)


class ProbeStream:
    """An open connection."""

    def __init__(
        self,
        connection: ClientConnection,
        handshake: Handshake,
        checker: Checker,
        log: FrameLog,
        note: Note,
        *,
        acknowledges: bool,
    ) -> None:
        # The changes of the open transaction; None between transactions. Written by `transaction`.
        self.open: list[Change] | None = None
        self.connection = connection
        self._dialect = handshake.dialect
        self._checker = checker
        self._log = log
        self._note = note
        self._acknowledges = acknowledges

    async def next(self, seconds: float) -> AnyDownstream | None:
        """The next message, checked; None for a malformed frame."""
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                received = await self.connection.recv()
        except TimeoutError:
            raise Silent from None
        except ConnectionClosed as error:
            raise StreamClosed(str(error)) from None
        text = received.encode() if isinstance(received, str) else received
        entry = self._log.frame("down", text)
        for violation in self._checker.take(entry):
            self._note(finding(violation, text))
        return self._checker.message

    async def transaction(self, seconds: float, patience: float) -> SeenTransaction:
        """The next whole transaction, acknowledged.

        It must begin within `seconds`; `patience` is the longest pause inside it. Raises `Silent`, `StreamClosed` or
        `ResetReceived`.
        """
        until = time.monotonic() + seconds
        while True:
            match await self.next(until - time.monotonic() if self.open is None else patience):
                case Begin():
                    self.open = []
                case Data(change=change):
                    (self.open if self.open is not None else []).append(change)
                case Commit(watermark=watermark):
                    changes, self.open = tuple(self.open or ()), None
                    await self.acknowledge(watermark)
                    return SeenTransaction(watermark, changes, _digest(changes))
                case Rollback():
                    self.open = None
                case Status(watermark=watermark) as status if status.wants_ack:
                    await self.acknowledge(watermark, of_commit=False)
                case ResetRequired(message=message):
                    raise ResetReceived(message or "")
                case _:
                    pass

    async def acknowledge(self, watermark: str, *, of_commit: bool = True) -> None:
        """Acknowledge all up to a watermark, in the form of the dialect; no effect for a stream that must not."""
        if not self._acknowledges:
            return
        ack: AnyUpstream = Ack(watermark=watermark)
        if self._dialect == "shipped":
            ack = (
                StatusAck(watermark=watermark, tag="commit") if of_commit else StatusAck(watermark=watermark, ack=True)
            )
        text = codec.encode(ack)
        self._checker.take(self._log.frame("up", text))
        try:
            await self.connection.send(text, text=True)
        except ConnectionClosed as error:
            raise StreamClosed(str(error)) from None

    async def answers_ping(self, seconds: float) -> bool:
        """Whether a pong arrives in time. Messages before it are read, because the pong queues behind them."""
        try:
            pong = asyncio.ensure_future(await self.connection.ping())
        except ConnectionClosed as error:
            raise StreamClosed(str(error)) from None
        until = time.monotonic() + seconds
        while not pong.done() and (left := until - time.monotonic()) > 0:
            with suppress(Silent):
                await self.next(min(left, READ_SECONDS))
        if not pong.done():
            pong.cancel()
            return False
        if closed := pong.exception():
            raise StreamClosed(str(closed))
        return True


@asynccontextmanager
async def probe(
    url: str,
    handshake: Handshake,
    log: FrameLog,
    note: Note,
    *,
    seconds: float,
    checker: Checker | None = None,
    acknowledges: bool = True,
) -> AsyncIterator[ProbeStream]:
    """Open a stream with these parameters; pass `checker` when the same consumer connects again."""
    judge = checker or Checker()
    async with connected(request_url(url, handshake.query), seconds) as connection:
        # Not the requested URL: zero-cache accepts any path, and an API key must not appear in a transcript.
        judge.take(log.connect(f"{STREAM}?{handshake.query}"))
        yield ProbeStream(connection, handshake, judge, log, note, acknowledges=acknowledges)


def finding(violation: Violation, text: bytes) -> Finding:
    """A broken rule with the frame that broke it."""
    shown = text[: SHOWN_CHARACTERS * 4].decode(errors="replace")
    return Finding(violation.rule, violation.message, violation.frame, shown)


def _digest(changes: tuple[Change, ...]) -> str:
    made = hashlib.sha256()
    for change in changes:
        made.update(json.dumps(change.to_json(), sort_keys=True, default=str).encode())
    return made.hexdigest()
