"""A scripted consumer that keeps the rules: it syncs, follows, acknowledges, and folds what it gets into plain dicts.

It stands for zero-cache where starting the real one would be too slow. It is built on the protocol's own consumer
session, so a message that zero-cache would refuse is an error here too, and it records a transcript that
`protocol.rules.check` can judge. What it does not show is how zero-cache stores things: only zero-cache can.

    cache = FakeCache("ws://127.0.0.1:4810/changes/v0/stream")
    await cache.initial_sync()
    async with cache.stream():
        await cache.until(lambda: "7" in cache.rows("issue"))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import ClientConnection, connect

from protocol import transcript
from protocol.changes import Change
from protocol.codec import AnyDownstream
from protocol.fold.rows import FoldedTables, Rows
from protocol.handshake import Dialect, Handshake
from protocol.messages import Begin, Commit, Data, ResetRequired, Rollback
from protocol.session import ConsumerSession
from protocol.specs import JsonObject


class ResetAsked(Exception):
    """The source said `reset-required`: the next step is `initial_sync`, as it is for zero-cache."""


class FakeCache:
    """One replica of one app and shard. Invariant: `tables` holds committed transactions only."""

    def __init__(
        self, url: str, *, app_id: str = "zero", shard_num: int = 0, dialect: Dialect = "shipped", timeout: float = 60.0
    ) -> None:
        self._folded = FoldedTables()
        self.commits: list[str] = []
        self.transcript: list[bytes] = []
        self.acknowledges = True
        self._url = url
        self._timeout = timeout
        self._session = ConsumerSession(Handshake(dialect, app_id, shard_num))
        self._connection: ClientConnection | None = None
        self._open: list[Change] = []

    @property
    def watermark(self) -> str | None:
        """The last commit taken in."""
        return self._session.last_watermark

    @property
    def connection(self) -> ClientConnection:
        """The open connection."""
        assert self._connection is not None, "open a stream first"
        return self._connection

    @property
    def replica_version(self) -> str | None:
        """The snapshot this replica stems from."""
        return self._session.replica_version

    @property
    def tables(self) -> dict[str, Rows]:
        """Rows by key, by the table's name in the replica."""
        return self._folded.tables

    def rows(self, table: str) -> dict[object, JsonObject]:
        """A table's rows by their key: the value itself for a key of one column, else the tuple."""
        found = self.tables.get(table, {})
        return {key[0] if len(key) == 1 else key: row for key, row in found.items()}

    async def initial_sync(self) -> None:
        """Start from nothing: one connection, one transaction, as zero-cache does it."""
        self._folded, self._open = FoldedTables(), []
        handshake = self._session.reconnect()
        fresh = Handshake(handshake.dialect, handshake.app_id, handshake.shard_num)
        async with self.stream(fresh):
            await self.until(lambda: self._session.last_watermark is not None)

    @asynccontextmanager
    async def stream(self, handshake: Handshake | None = None) -> AsyncIterator[None]:
        """A connection that resumes after the last commit; what was open when the former one ended is forgotten."""
        self._session = ConsumerSession(handshake or self._session.reconnect())
        self._open = []
        target = f"{self._url}{'&' if '?' in self._url else '?'}{urlencode(_parameters(self._session.reconnect()))}"
        parts = urlsplit(target)
        self.transcript.append(transcript.connect_line(f"{parts.path}?{parts.query}"))
        asked = connect(target, max_size=None, compression=None, proxy=None, open_timeout=self._timeout)
        async with asked as self._connection:
            yield

    async def until(self, condition: Callable[[], bool]) -> None:
        """Take in messages until the condition holds; `TimeoutError` if it never does, `ResetAsked` on a reset."""
        async with asyncio.timeout(self._timeout):
            while not condition():
                await self.receive()

    async def transactions(self, count: int) -> None:
        """Take in that many more commits."""
        wanted = len(self.commits) + count
        await self.until(lambda: len(self.commits) >= wanted)

    async def receive(self) -> AnyDownstream:
        """Take in one message and send the acks that are due."""
        text = await self.connection.recv(decode=True)
        self.transcript.append(transcript.frame_line("down", text))
        message = self._session.receive(text)
        self._take(message)
        if isinstance(message, ResetRequired):
            raise ResetAsked(message.message)
        for ack in self._session.acks() if self.acknowledges else ():
            self.transcript.append(transcript.frame_line("up", ack))
            await self.connection.send(ack, text=True)
        return message

    def _take(self, message: AnyDownstream) -> None:
        match message:
            case Begin() | Rollback():
                self._open = []
            case Data():
                self._open.append(message.change)
            case Commit():
                self._folded.apply(self._open)
                self._open = []
                self.commits.append(message.watermark)
                self._session.durable(message.watermark)
            case _:
                pass


def _parameters(handshake: Handshake) -> dict[str, str]:
    if handshake.dialect == "shipped":
        given = {"appID": handshake.app_id, "shardNum": str(handshake.shard_num)}
    else:
        given = {"shardID": handshake.shard}
    if handshake.last_watermark is not None:
        given["lastWatermark"] = handshake.last_watermark
    if handshake.replica_version is not None:
        given["replicaVersion"] = handshake.replica_version
    return given
