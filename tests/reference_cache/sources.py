"""Change sources for the replicator's tests: real sockets, every message written by the test.

`ScriptedSource` serves one scene per connection: a coroutine that gets the socket and the request. The last scene is
repeated. `requests` has what each connection asked for, `acks` the watermarks that were acknowledged, in order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from protocol.stream.handshake import Handshake, parse_target
from tests.support.fakes.tiny_source import Message, system_tables, table

ITEM = {"schema": "public", "name": "item", "rowKey": {"columns": ["id"]}}
Scene = Callable[["Stage"], Awaitable[None]]


def begin(watermark: str, **payload: Any) -> Message:
    return ["begin", {"tag": "begin", **payload}, {"commitWatermark": watermark}]


def commit(watermark: str, **payload: Any) -> Message:
    return ["commit", {"tag": "commit", **payload}, {"watermark": watermark}]


def insert(key: int, name: str | None = None, **columns: Any) -> Message:
    return ["data", {"tag": "insert", "relation": ITEM, "new": {"id": key, "name": name, **columns}}]


def update(key: int, name: str | None = None, *, old: int | None = None, **columns: Any) -> Message:
    before = None if old is None else {"id": old}
    return ["data", {"tag": "update", "relation": ITEM, "key": before, "new": {"id": key, "name": name, **columns}}]


def delete(key: int) -> Message:
    return ["data", {"tag": "delete", "relation": ITEM, "key": {"id": key}}]


def transaction(watermark: str, *changes: Message) -> list[Message]:
    return [begin(watermark), *changes, commit(watermark)]


def snapshot(watermark: str, *changes: Message, columns: dict[str, str] | None = None) -> list[Message]:
    """An initial sync: the app's own tables, the table `item`, and these changes."""
    item = table("public", "item", {"id": "int8", "name": "text", **(columns or {})}, ["id"])
    return transaction(watermark, *system_tables("zero", "0"), *item, *changes)


class Stage:
    """One connection as a scene sees it."""

    def __init__(self, source: ScriptedSource, socket: ServerConnection, request: Handshake) -> None:
        self.request = request
        self.socket = socket
        self._source = source

    async def send(self, messages: Sequence[Message | str]) -> None:
        for message in messages:
            await self.socket.send(message if isinstance(message, str) else json.dumps(message))

    async def hold(self) -> None:
        """Read acknowledgements until the consumer leaves."""
        async for text in self.socket:
            await self._source.acknowledge(json.loads(text)[2]["watermark"])


class ScriptedSource:
    """A running change source; use as an async context."""

    def __init__(self, *scenes: Scene) -> None:
        self._scenes = list(scenes)
        self._server: Server | None = None
        self._changed = asyncio.Condition()
        self.requests: list[Handshake] = []
        self.acks: list[str] = []

    async def __aenter__(self) -> ScriptedSource:
        self._server = await serve(self._serve, "127.0.0.1", 0, compression=None)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        port = next(iter(self._server.sockets)).getsockname()[1]
        return f"ws://127.0.0.1:{port}/changes/v0/stream"

    async def acknowledge(self, watermark: str) -> None:
        async with self._changed:
            self.acks.append(watermark)
            self._changed.notify_all()

    async def until(self, condition: Callable[[ScriptedSource], bool]) -> None:
        """Wait for something about requests or acks."""
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(lambda: condition(self)), 60)

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        _, request = parse_target(socket.request.path)
        async with self._changed:
            self.requests.append(request)
            scene = self._scenes.pop(0) if len(self._scenes) > 1 else self._scenes[0]
            self._changed.notify_all()
        try:
            await scene(Stage(self, socket, request))
        except ConnectionClosed:
            return


def play(*messages: Message | str) -> Scene:
    """A scene: send these messages, then read until the consumer leaves."""

    async def scene(stage: Stage) -> None:
        await stage.send(messages)
        await stage.hold()

    return scene
