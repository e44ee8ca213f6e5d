"""Running caches, each with a tiny source: one verifies tokens itself, one has an application that judges them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.apps.thread import AppThread
from tests.support.fakes.sync_client import SyncClient, sync_url
from tests.support.fakes.tiny_source import TinySource, insert
from tests.support.peers.reference_cache import ReferenceCache

SECRET = "a secret that is long enough for HMAC"
COLUMNS = {"id": {"type": "number"}, "name": {"type": "string"}}
SCHEMA = {"tables": {"item": {"columns": COLUMNS, "primaryKey": ["id"]}}}
ITEMS = {"op": "put", "hash": "items", "ast": {"table": "item", "orderBy": [["id", "asc"]]}}
INIT: dict[str, Any] = {"desiredQueriesPatch": [ITEMS], "clientSchema": SCHEMA}
AGAIN: dict[str, Any] = {"desiredQueriesPatch": []}


class Application(AppThread):
    """Accepts every token but `bad…`. A token `named-ann-1` is of ann, and the answers say so; others name nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, Any]] = []

    def _application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/query", self._query)
        app.router.add_post("/mutate", self._mutate)
        return app

    async def _close(self) -> None: ...

    async def _query(self, request: web.Request) -> web.Response:
        self.requests.append(("query", await request.json()))
        if (token := _token(request)).startswith("bad"):
            return web.Response(status=401)
        answer: dict[str, Any] = {"kind": "QueryResponse", "queries": []}
        for asked in (await request.json())[1]:
            # The name of a query is the name of the item it shows.
            same = {"type": "simple", "op": "=", "left": {"type": "column", "name": "name"}}
            same["right"] = {"type": "literal", "value": asked["name"]}
            answer["queries"].append({**asked, "ast": {"table": "item", "where": same}})
        return web.json_response(answer | _user(token))

    async def _mutate(self, request: web.Request) -> web.Response:
        self.requests.append(("mutate", await request.json()))
        return web.json_response({"kind": "MutateResponse", "mutations": []} | _user(_token(request)))


def _token(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


def _user(token: str) -> dict[str, Any]:
    return {"userID": token.split("-")[1]} if token.startswith("named-") else {}


class Running:
    """A cache that can be restarted; every test has groups of its own."""

    def __init__(self, cache: ReferenceCache, source: TinySource, app: Application) -> None:
        self.cache, self.source, self.app = cache, source, app

    def url(self, client: str, group: str, **more: Any) -> str:
        return sync_url(self.cache.port, client, group, **more)

    def restart(self, before: Any = lambda: None) -> None:
        """Kill the cache, do what is asked, and start it."""
        self.cache.kill()
        before()
        self.cache.start()

    @property
    def records(self) -> Path:
        """The file of client records."""
        return self.cache.replica_file.with_name(f"{self.cache.replica_file.name}-cvr")

    def forget_records(self) -> None:
        """Lose the file of client records."""
        for file in self.records.parent.glob(f"{self.records.name}*"):
            file.unlink()

    def forget_owners(self) -> None:
        """Make the file of client records what the version before the record of owners has written."""
        with sqlite3.connect(self.records) as records:
            records.execute("DROP TABLE group_owners")
        records.close()


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The cache with the settings of the test module (`SETTINGS`); with `WITH_APPLICATION`, one that asks it."""
    with ExitStack() as stack:
        source = stack.enter_context(TinySource(insert(1, "one"), insert(2, "two")))
        app = stack.enter_context(Application())
        settings = dict(getattr(request.module, "SETTINGS", {}))
        if getattr(request.module, "WITH_APPLICATION", False):
            settings |= app.settings
        cache = stack.enter_context(ReferenceCache(source.url, tmp_path_factory.mktemp("access"), settings=settings))
        stack.callback(lambda: print(cache.process.tail(80)))
        yield Running(cache.start(), source, app)


async def synced(client: SyncClient) -> str:
    """Wait for the rows of the first queries; the cookie."""
    while True:
        end = await client.hear("pokeEnd")
        if any("gotQueriesPatch" in body for tag, body in client.frames if tag == "pokePart"):
            return str(end["cookie"])


async def is_served(client: SyncClient) -> bool:
    """Whether the connection is alive and well, when everything said before has been done."""
    await client.say("deleteClients", {"clientIDs": ["nobody"]})
    return bool(await client.hear("deleteClients", "error") == {"clientIDs": ["nobody"]})


def rows(client: SyncClient) -> list[str]:
    """The names of all rows the client was ever sent."""
    return [op["value"]["name"] for op in row_patches(client) if op["op"] == "put"]


def row_patches(client: SyncClient) -> list[dict[str, Any]]:
    parts = [body.get("rowsPatch", []) for tag, body in client.frames if tag == "pokePart"]
    return [op for part in parts for op in part]


async def refusal(client: SyncClient) -> tuple[str, int | None]:
    """The kind of the error that ends the connection, and the close code."""
    return (await client.error())["kind"], client.socket.close_code
