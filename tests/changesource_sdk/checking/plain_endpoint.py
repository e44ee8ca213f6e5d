"""An endpoint of `/changes/v0/stream` written with `websockets` and nothing of ours, and many that are a little wrong.

`PlainEndpoint` is right, in both dialects: a table of items, a log in memory, every stream from its own watermark. It
writes to itself: the first live stream finds a few transactions to follow. Each subclass has one mistake, as someone
who writes an endpoint would make it; its docstring says which.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.support.fakes.tiny_source import Message, system_tables, table

ITEM = {"schema": "public", "name": "item", "rowKey": {"columns": ["id"]}}
COLUMNS = {"id": "int8", "name": "text", "doc": "json"}
TRANSACTIONS = 4
Row = dict[str, Any]


def lexi(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if not number:
            return "0123456789abcdefghijklmnopqrstuvwxyz"[len(digits) - 1] + digits


def insert(row: Row) -> Message:
    return ["data", {"tag": "insert", "relation": ITEM, "new": row}]


def update(row: Row, old_id: int | None = None) -> Message:
    key = None if old_id is None else {"id": old_id}
    return ["data", {"tag": "update", "relation": ITEM, "key": key, "new": row}]


def delete(number: int) -> Message:
    return ["data", {"tag": "delete", "relation": ITEM, "key": {"id": number}}]


class PlainEndpoint:
    """The right one. Transaction n has the watermark of n + 100; the log begins empty, before the first snapshot."""

    first = 100
    begin: ClassVar[dict[str, Any]] = {"tag": "begin"}

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {n: {"id": n, "name": f"item {n}", "doc": {"n": n}} for n in (1, 2, 3)}
        self.log: list[list[Message]] = []
        self.versions: dict[str, int] = {}  # of initial syncs, and the transaction that each one shows
        self.url = ""

    # -- the store

    def write(self) -> None:
        """As many as `TRANSACTIONS` says: a row added, changed, given another key, and removed."""
        self.rows[4] = {"id": 4, "name": "four", "doc": [1, "two", None]}
        self.log.append([insert(self.rows[4])])
        self.rows[1] = {"id": 1, "name": "one, changed", "doc": None}
        self.log.append([update(self.rows[1])])
        self.rows[20] = {**self.rows.pop(2), "id": 20}
        self.log.append(self.moved(self.rows[20], 2))
        del self.rows[3]
        self.log.append([delete(3)])

    def moved(self, row: Row, old_id: int) -> list[Message]:
        return [update(row, old_id)]

    @property
    def head(self) -> int:
        return self.first + len(self.log)

    # -- the stream

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        return connection.respond(400, "appID is missing\n") if self.refuses(request.path) else None

    def refuses(self, path: str) -> bool:
        return False

    async def stream(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        asked = {name: values[0] for name, values in parse_qs(urlsplit(connection.request.path).query).items()}
        is_sketch = "shardID" in asked
        app, shard = asked["shardID"].rsplit("_", 1) if is_sketch else (asked["appID"], asked["shardNum"])
        reading = asyncio.create_task(self.read(connection))
        try:
            if "lastWatermark" in asked:
                await self.follow(connection, asked["lastWatermark"], asked.get("replicaVersion"))
                return
            reached = self.head
            await self.send(connection, self.version(reached), self.snapshot(app, shard))
            if is_sketch:
                await self.send_after(connection, reached)
            await self.after_initial(connection)
        except ConnectionClosed:
            pass
        finally:
            reading.cancel()

    async def read(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            async for text in connection:
                await self.take_ack(connection, json.loads(text))

    async def take_ack(self, connection: ServerConnection, ack: Message) -> None:
        """Nothing to forget in this one."""

    async def after_initial(self, connection: ServerConnection) -> None:
        await connection.wait_closed()

    def watermark(self, number: int) -> str:
        return lexi(number)

    def version(self, reached: int) -> str:
        """A new watermark for an initial sync: above all that was sent, below the next transaction."""
        version = f"{self.watermark(reached)}.{lexi(len(self.versions))}"
        self.versions[version] = reached
        return version

    def number(self, watermark: str) -> int | None:
        """Which transaction a watermark stands for; None if it is none of ours."""
        known = {self.watermark(n): n for n in range(self.first, self.head + 1)}
        return (known | self.versions).get(watermark)

    def own_tables(self, app: str, shard: str) -> list[Message]:
        return system_tables(app, shard)

    def item_table(self) -> list[Message]:
        return table("public", "item", COLUMNS, ["id"])

    def snapshot(self, app: str, shard: str) -> list[Message]:
        return [*self.own_tables(app, shard), *self.item_table(), *map(insert, self.rows.values())]

    async def follow(self, connection: ServerConnection, last: str, version: str | None) -> None:
        start = self.number(last)
        if start is None or (version is not None and self.number(version) is None):
            self.take_claim(int(last.partition(".")[0][1:], 36))
            await connection.send(json.dumps(["control", {"tag": "reset-required", "message": "unknown"}]))
            await connection.wait_closed()
            return
        if not self.log:
            self.write()
        await self.send_after(connection, start)

    def take_claim(self, claimed: int) -> None:
        """A consumer says that it knows more than we do: that is its own affair."""

    async def send_after(self, connection: ServerConnection, start: int) -> None:
        for number in range(start - self.first, len(self.log)):
            await self.send(connection, self.watermark(self.first + number + 1), self.log[number])
        await self.idle(connection)

    async def idle(self, connection: ServerConnection) -> None:
        newest = max([self.watermark(self.head), *self.versions])
        await connection.send(json.dumps(["status", {"ack": True}, {"watermark": newest}]))
        await connection.wait_closed()

    async def send(self, connection: ServerConnection, watermark: str, messages: list[Message]) -> None:
        await connection.send(json.dumps(["begin", self.begin, {"commitWatermark": watermark}]))
        for message in messages:
            await connection.send(json.dumps(message))
        await self.commit(connection, watermark)

    async def commit(self, connection: ServerConnection, watermark: str) -> None:
        await connection.send(json.dumps(["commit", {"tag": "commit"}, {"watermark": watermark}]))

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve from a thread of its own, with a loop of its own; the URL."""
        loop = asyncio.new_event_loop()
        ready, done = threading.Event(), asyncio.Event()

        async def run() -> None:
            async with serve(self.stream, "127.0.0.1", 0, compression=None, process_request=self.admit) as server:
                port = server.sockets[0].getsockname()[1]
                self.url = f"ws://127.0.0.1:{port}/changes/v0/stream"
                ready.set()
                await done.wait()
                server.close(close_connections=True)

        thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
        thread.start()
        assert ready.wait(60)
        try:
            yield self.url
        finally:
            loop.call_soon_threadsafe(done.set)
            thread.join(60)
            loop.close()


class LosesTheFirstChange(PlainEndpoint):
    """Lost at the seam: starts one transaction too late."""

    async def send_after(self, connection: ServerConnection, start: int) -> None:
        await super().send_after(connection, start + 1)


class RepeatsTheLastChange(PlainEndpoint):
    """Doubled: sends the transaction of lastWatermark again (>= for >)."""

    async def send_after(self, connection: ServerConnection, start: int) -> None:
        await super().send_after(connection, max(start - 1, self.first))


class TearsTransactions(PlainEndpoint):
    """Leaves a transaction open and goes idle."""

    async def commit(self, connection: ServerConnection, watermark: str) -> None:
        if watermark < self.watermark(self.first + 2):
            await super().commit(connection, watermark)
        else:
            await connection.wait_closed()


class ReusesWatermarks(PlainEndpoint):
    """Two transactions share one watermark, as with a clock of seconds."""

    def watermark(self, number: int) -> str:
        return lexi(number - number % 2)


class FallingWatermarks(PlainEndpoint):
    """Counts down."""

    def watermark(self, number: int) -> str:
        return lexi(10_000 - number)


class DecimalWatermarks(PlainEndpoint):
    """Sortable, but no LexiVersions."""

    def watermark(self, number: int) -> str:
        return f"{number:08d}"


class ForgetsMutations(PlainEndpoint):
    """Leaves out a table that zero-cache requires."""

    def own_tables(self, app: str, shard: str) -> list[Message]:
        return [m for m in super().own_tables(app, shard) if "mutations" not in json.dumps(m)]


class OnlyForZero(PlainEndpoint):
    """Makes its own tables for the app `zero` and shard 0 whoever asks."""

    def own_tables(self, app: str, shard: str) -> list[Message]:
        return super().own_tables("zero", "0")


class NoPermissions(PlainEndpoint):
    """Creates the table of permissions and leaves it empty."""

    def own_tables(self, app: str, shard: str) -> list[Message]:
        return super().own_tables(app, shard)[:-1]


class NumbersForTexts(PlainEndpoint):
    """Puts a number into a text column."""

    def write(self) -> None:
        self.rows[5] = {"id": 5, "name": 5, "doc": None}
        self.log.append([insert(self.rows[5])])


class InsertsForUpdates(PlainEndpoint):
    """Sends an insert with the changed columns only, which empties the others."""

    def write(self) -> None:
        self.rows[1] = {**self.rows[1], "name": "changed"}
        self.log.append([insert({"id": 1, "name": "changed"})])


class LosesKeyChanges(PlainEndpoint):
    """Sends an update without the old key when the key changed."""

    def moved(self, row: Row, old_id: int) -> list[Message]:
        return [update(row)]


class ClosesOnRepeatedAcks(PlainEndpoint):
    """Takes an ack that is not ahead for an attack."""

    acked = ""

    async def take_ack(self, connection: ServerConnection, ack: Message) -> None:
        if ack[2]["watermark"] < self.acked:
            await connection.close(1008, "ack went back")
        self.acked = ack[2]["watermark"]


class WrongJsonMode(PlainEndpoint):
    """Announces JSON as texts and sends a value, which is no JSON text."""

    begin: ClassVar[dict[str, Any]] = {"tag": "begin", "json": "s"}

    def __init__(self) -> None:
        super().__init__()
        self.rows[1]["doc"] = "plain"


class ForgetsItsLog(PlainEndpoint):
    """Keeps only the newest position, as after a restart that lost the log."""

    def number(self, watermark: str) -> int | None:
        number = super().number(watermark)
        return number if number in (self.first, self.head) else None


class RowsBeforeColumns(PlainEndpoint):
    """Sends rows with a new column before the column."""

    def write(self) -> None:
        self.rows[5] = {"id": 5, "name": "five", "doc": None, "late": 1}
        column = {"name": "late", "spec": {"pos": 4, "dataType": "int8"}}
        identity = {"schema": "public", "name": "item"}
        self.log.append([insert(self.rows[5]), ["data", {"tag": "add-column", "table": identity, "column": column}]])


class BlocksItsLoop(PlainEndpoint):
    """Runs a slow query in the event loop when a stream is idle."""

    async def idle(self, connection: ServerConnection) -> None:
        time.sleep(2.5)  # noqa: ASYNC251


class NeverResets(PlainEndpoint):
    """Takes a watermark that it does not know for its newest."""

    def number(self, watermark: str) -> int | None:
        return super().number(watermark) or self.head


class SnapshotOfTwoMoments(PlainEndpoint):
    """Rows of now under the watermark of the first snapshot."""

    async def send(self, connection: ServerConnection, watermark: str, messages: list[Message]) -> None:
        is_snapshot = any(message[1]["tag"] == "create-table" for message in messages)
        old = self.watermark(self.first) + watermark[len(self.watermark(self.head)) :]
        self.versions[old] = self.first
        await super().send(connection, old if is_snapshot else watermark, messages)


class OtherContentEachTime(PlainEndpoint):
    """Makes transactions up from the rows as they are, each time anew."""

    reads = 0

    async def send_after(self, connection: ServerConnection, start: int) -> None:
        self.reads += 1
        self.log[1] = [update({**self.rows[1], "name": f"read {self.reads}"})]
        await super().send_after(connection, start)


class GoesOnAfterTheSnapshot(PlainEndpoint):
    """Streams on the connection of an initial sync."""

    async def after_initial(self, connection: ServerConnection) -> None:
        await self.idle(connection)


class ClosesWhenIdle(PlainEndpoint):
    """Sends what there is and hangs up."""

    async def idle(self, connection: ServerConnection) -> None:
        await connection.close()


class OneConsumerOnly(PlainEndpoint):
    """Hangs up on the first consumer when a second comes."""

    current: ServerConnection | None = None

    async def send_after(self, connection: ServerConnection, start: int) -> None:
        if self.current is not None:
            await self.current.close(1001, "replaced")
        self.current = connection
        await super().send_after(connection, start)


class BatchesMessages(PlainEndpoint):
    """Sends the messages of a transaction as one array."""

    async def send(self, connection: ServerConnection, watermark: str, messages: list[Message]) -> None:
        begin: Message = ["begin", self.begin, {"commitWatermark": watermark}]
        commit: Message = ["commit", {"tag": "commit"}, {"watermark": watermark}]
        is_snapshot = any(message[1]["tag"] == "create-table" for message in messages)
        for frame in [begin, *messages, commit] if is_snapshot else [[begin, *messages, commit]]:
            await connection.send(json.dumps(frame))


class ServesOldWatermarks(PlainEndpoint):
    """Gives an initial sync the watermark of the newest transaction, which was sent before."""

    def version(self, reached: int) -> str:
        return self.watermark(reached)


class BelievesClaims(PlainEndpoint):
    """Starts over for everybody above whatever watermark a consumer claims to have seen."""

    def take_claim(self, claimed: int) -> None:
        if claimed > self.head:
            self.first, self.log, self.versions = claimed + 1, [], {}


class NoKeyIndex(PlainEndpoint):
    """Trusts primaryKey and creates no unique index."""

    def item_table(self) -> list[Message]:
        return super().item_table()[:1]


class ShippedDialectOnly(PlainEndpoint):
    """Right, in the dialect of released caches only."""

    def refuses(self, path: str) -> bool:
        return "appID" not in path
