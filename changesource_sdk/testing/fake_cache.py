"""A scripted consumer that keeps the rules: it syncs, follows, acknowledges, and folds what it gets into plain dicts.

It replaces zero-cache where starting the real one would be too slow. It uses the protocol's own consumer session, so a
message that zero-cache would refuse is an error here too, and it records a transcript for `protocol.rules.check`. How
zero-cache stores rows is not simulated.

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

from protocol.changes import Change
from protocol.codec import AnyDownstream
from protocol.fold.rows import FoldedTables, Rows
from protocol.messages import Begin, Commit, Data, ResetRequired, Rollback
from protocol.specs import JsonObject
from protocol.stream import transcript
from protocol.stream.handshake import Dialect, Handshake
from protocol.stream.session import ConsumerSession


class ResetAsked(Exception):
    """The source sent `reset-required`: the next step is `initial_sync`, as it is for zero-cache."""


class FakeCache:
    """One replica of one app and shard. Invariant: `tables` has committed transactions only."""

    def __init__(
        self, url: str, *, app_id: str = "zero", shard_num: int = 0, dialect: Dialect = "shipped", timeout: float = 60.0
    ) -> None:
        # The rows; replaced by `initial_sync`.
        self._folded = FoldedTables()
        # The watermarks of all commits, over all connections. Appended by `receive`.
        self.commits: list[str] = []
        # One line per connection and frame, over all connections. Appended by `stream`, `receive` and acks.
        self.transcript: list[bytes] = []
        # A test sets it to False for a consumer that sends no acks.
        self.acknowledges = True
        self._url = url
        self._timeout = timeout
        # The session of the last `stream`.
        self._session = ConsumerSession(Handshake(dialect, app_id, shard_num))
        # The connection of the last `stream`; None before the first.
        self._connection: ClientConnection | None = None
        # The changes of the open transaction.
        self._open: list[Change] = []

    @property
    def watermark(self) -> str | None:
        """The last commit that was applied."""
        return self._session.last_watermark

    @property
    def connection(self) -> ClientConnection:
        """The open connection."""
        assert self._connection is not None, "open a stream first"
        return self._connection

    @property
    def replica_version(self) -> str | None:
        """The version of the initial sync that this replica began with."""
        return self._session.replica_version

    @property
    def tables(self) -> dict[str, Rows]:
        """Rows by key, by the table's name in the replica."""
        return self._folded.tables

    def rows(self, table: str) -> dict[object, JsonObject]:
        """A table's rows by their key: the value itself for a key of one column, else the tuple."""
        rows = self.tables.get(table, {})
        return {key[0] if len(key) == 1 else key: row for key, row in rows.items()}

    async def initial_sync(self) -> None:
        """Start over with an initial sync: one connection, one transaction, as in zero-cache."""
        self._folded, self._open = FoldedTables(), []
        handshake = self._session.reconnect()
        fresh = Handshake(handshake.dialect, handshake.app_id, handshake.shard_num)
        async with self.stream(fresh):
            await self.until(lambda: self._session.last_watermark is not None)

    @asynccontextmanager
    async def stream(self, handshake: Handshake | None = None) -> AsyncIterator[None]:
        """A connection that resumes after the last commit; an unfinished transaction is discarded."""
        self._session = ConsumerSession(handshake or self._session.reconnect())
        self._open = []
        target = f"{self._url}{'&' if '?' in self._url else '?'}{urlencode(_parameters(self._session.reconnect()))}"
        parts = urlsplit(target)
        self.transcript.append(transcript.connect_line(f"{parts.path}?{parts.query}"))
        connecting = connect(target, max_size=None, compression=None, proxy=None, open_timeout=self._timeout)
        async with connecting as self._connection:
            yield

    async def until(self, condition: Callable[[], bool]) -> None:
        """Receive messages until the condition holds; `TimeoutError` if it never does, `ResetAsked` on a reset."""
        async with asyncio.timeout(self._timeout):
            while not condition():
                await self.receive()

    async def transactions(self, count: int) -> None:
        """Receive this many more commits."""
        wanted = len(self.commits) + count
        await self.until(lambda: len(self.commits) >= wanted)

    async def receive(self) -> AnyDownstream:
        """Apply one message and send the acks that are due."""
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
        parameters = {"appID": handshake.app_id, "shardNum": str(handshake.shard_num)}
    else:
        parameters = {"shardID": handshake.shard}
    if handshake.last_watermark is not None:
        parameters["lastWatermark"] = handshake.last_watermark
    if handshake.replica_version is not None:
        parameters["replicaVersion"] = handshake.replica_version
    return parameters
