"""The smallest correct change source: a few lines over `websockets`, independent of the code under test.

It proves that the zero-cache driver works before anything of ours is involved. Contract: one table `item(id,
name)`, one snapshot, and whatever transactions `commit` appends; every stream starts strictly after the
consumer's watermark.
"""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.support.waiting import LONGEST_WAIT_S

Message = list[Any]
SNAPSHOT = "110"
ITEM = {"schema": "public", "name": "item", "rowKey": {"columns": ["id"]}}
ANYONE_MAY_READ = {"tables": {"item": {"row": {"select": [["allow", {"type": "and", "conditions": []}]]}}}}


def insert(key: int, name: str) -> Message:
    return ["data", {"tag": "insert", "relation": ITEM, "new": {"id": key, "name": name}}]


def table(schema: str, name: str, columns: dict[str, str], key: list[str]) -> list[Message]:
    specs = {
        column: {"pos": pos, "dataType": kind, "notNull": column in key}
        for pos, (column, kind) in enumerate(columns.items(), 1)
    }
    columns_of_key = dict.fromkeys(key, "ASC")
    index = {"schema": schema, "tableName": name, "name": f"{name}_key", "unique": True, "columns": columns_of_key}
    create = {"tag": "create-table", "spec": {"schema": schema, "name": name, "columns": specs}}
    return [["data", create], ["data", {"tag": "create-index", "spec": index}]]


def system_tables(app: str, shard: str) -> list[Message]:
    owner, ids = f"{app}_{shard}", {"clientGroupID": "text", "clientID": "text"}
    permissions = {"schema": app, "name": "permissions", "rowKey": {"columns": ["lock"]}}
    row = {"lock": True, "permissions": ANYONE_MAY_READ, "hash": "1"}
    return [
        *table(owner, "clients", {**ids, "lastMutationID": "int8", "userID": "text"}, [*ids]),
        *table(
            owner,
            "mutations",
            {**ids, "mutationID": "int8", "mutation": "json", "result": "json"},
            [*ids, "mutationID"],
        ),
        *table(app, "permissions", {"lock": "bool", "permissions": "json", "hash": "text"}, ["lock"]),
        ["data", {"tag": "insert", "relation": permissions, "new": row}],
    ]


class TinySource:
    """A running change source; the n-th transaction (n < 36) has the watermark after the n-1-th."""

    def __init__(self, *snapshot: Message) -> None:
        self.acks: list[str] = []
        self._snapshot = list(snapshot)
        self._log: list[tuple[str, list[Message]]] = []
        self._grown = threading.Condition()
        self._closed = False
        self._server = serve(self._stream, "127.0.0.1", 0, compression=None)
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}/changes/v0/stream"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> TinySource:
        return self

    def __exit__(self, *_: object) -> None:
        with self._grown:
            self._closed = True
            self._grown.notify_all()
        self._server.shutdown()

    def commit(self, *messages: Message) -> str:
        """Append a transaction and return its watermark."""
        with self._grown:
            digit = "0123456789abcdefghijklmnopqrstuvwxyz"[len(self._log) + 1]
            self._log.append((f"11{digit}", list(messages)))
            self._grown.notify_all()
            return self._log[-1][0]

    def wait_for_ack(self, watermark: str, *, seconds: float = LONGEST_WAIT_S) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: watermark in self.acks, seconds), f"no ack of {watermark}: {self.acks}"

    def _stream(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        asked = parse_qs(urlsplit(connection.request.path).query)
        try:
            if "lastWatermark" in asked:
                threading.Thread(target=self._read_acks, args=(connection,), daemon=True).start()
                self._follow(connection, asked["lastWatermark"][0])
            else:
                app = system_tables(asked["appID"][0], asked["shardNum"][0])
                item = table("public", "item", {"id": "int8", "name": "text"}, ["id"])
                self._send(connection, SNAPSHOT, [*app, *item, *self._snapshot])
                connection.recv()  # the consumer closes when it has the snapshot
        except ConnectionClosed:
            return

    def _follow(self, connection: ServerConnection, watermark: str) -> None:
        sent = sum(1 for committed, _ in self._log if committed <= watermark)
        while True:
            with self._grown:
                while sent == len(self._log) and not self._closed:
                    self._grown.wait()
                if self._closed:
                    return
                ahead = self._log[sent:]
            for committed, messages in ahead:
                self._send(connection, committed, messages)
            sent += len(ahead)

    def _send(self, connection: ServerConnection, watermark: str, messages: list[Message]) -> None:
        begin: Message = ["begin", {"tag": "begin"}, {"commitWatermark": watermark}]
        commit: Message = ["commit", {"tag": "commit"}, {"watermark": watermark}]
        for message in [begin, *messages, commit]:
            connection.send(json.dumps(message))

    def _read_acks(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            for text in connection:
                with self._grown:
                    self.acks.append(json.loads(text)[2]["watermark"])
                    self._grown.notify_all()
