"""Bad input, out of order, unknown or hostile: our cache answers with the official cache's kind and close code.

Raw clients say the same to both; what comes back is compared, and nobody's connection is harmed by another's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Any

import pytest

from tests.support.apps.server import AppServer
from tests.support.apps.store import sqlite_app_store
from tests.support.fakes.sync_client import SyncClient, sync_client, sync_url
from tests.support.fakes.tiny_source import TinySource, insert
from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.zero_cache import QUIET
from tests.support.ports import is_listening
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SCHEMA = {"tables": {"item": {"columns": {"id": {"type": "number"}, "name": {"type": "string"}}, "primaryKey": ["id"]}}}
WRONG_COLUMN = {
    "tables": {"item": {"columns": {"id": {"type": "number"}, "nope": {"type": "string"}}, "primaryKey": ["id"]}}
}
WRONG_TYPE = {"tables": {"item": {"columns": {"id": {"type": "string"}}, "primaryKey": ["id"]}}}
WRONG_KEY = {
    "tables": {"item": {"columns": {"id": {"type": "number"}, "name": {"type": "string"}}, "primaryKey": ["name"]}}
}
WRONG_TABLE = {"tables": {"thing": {"columns": {"id": {"type": "number"}}, "primaryKey": ["id"]}}}
ITEMS = {"op": "put", "hash": "items", "ast": {"table": "item", "orderBy": [["id", "asc"]]}}
INIT = {"desiredQueriesPatch": [ITEMS], "clientSchema": SCHEMA}
MUTATION = {"type": "custom", "id": 1, "clientID": "c", "name": "m", "args": [], "timestamp": 1}
CRUD_OP = {"op": "insert", "tableName": "item", "primaryKey": ["id"], "value": {"id": 9, "name": "x"}}
CRUD = {**MUTATION, "type": "crud", "name": "_zero_crud", "args": [{"ops": [CRUD_OP]}]}
PASSWORD = QUIET["ZERO_ADMIN_PASSWORD"]
Outcome = tuple[Any, ...]


def push(mutation: object, group: str) -> dict[str, Any]:
    return {"clientGroupID": group, "mutations": [mutation], "pushVersion": 1, "timestamp": 1, "requestID": "r"}


class Prober:
    """Says things to one cache; each probe has a client and a group of its own."""

    def __init__(self, port: int, name: str) -> None:
        self.port, self.client, self.group = port, f"client-{name}", f"group-{name}"

    def url(self, **changes: Any) -> str:
        return sync_url(self.port, changes.pop("client", self.client), changes.pop("group", self.group), **changes)

    async def refusal(self, init: object = None, token: str | None = None, **changes: Any) -> Outcome:
        """How a connection that is refused ends: the error's kind, and the close code."""
        async with sync_client(self.url(**changes), init=init, token=token) as client:  # type: ignore[arg-type]
            return await ending(client)

    async def after(self, *texts: str) -> Outcome:
        """How a good connection ends that then says these things."""
        async with sync_client(self.url(), init=INIT) as client:
            await client.hear("pokeEnd", where=lambda body: True)
            for text in texts:
                await client.socket.send(text)
            return await ending(client)

    async def said(self, tag: str, body: object) -> Outcome:
        return await self.after(json.dumps([tag, body]))

    async def cookie(self) -> str:
        """Connect, get all rows, leave: the cookie one would come back with."""
        async with sync_client(self.url(), init=INIT) as client:
            end: str = await synced(client)
            return end


async def synced(client: SyncClient) -> str:
    while True:
        end = await client.hear("pokeEnd")
        if any("gotQueriesPatch" in frame[1] for frame in client.frames if frame[0] == "pokePart"):
            return str(end["cookie"])


async def ending(client: SyncClient) -> Outcome:
    code, _ = await client.closing()
    told = ("kind", "origin", "reason", "status", "bodyPreview", "mutationIDs", "queryIDs")
    errors = [[frame[1].get(name) for name in told] for frame in client.frames if frame[0] == "error"]
    return (*errors, code)


async def future_cookie(at: Prober) -> Outcome:
    return await at.refusal({"desiredQueriesPatch": []}, cookie="z" + await at.cookie())


async def other_schema(at: Prober) -> Outcome:
    cookie = await at.cookie()
    return await at.refusal({"desiredQueriesPatch": [], "clientSchema": WRONG_TABLE}, cookie=cookie)


async def other_user(at: Prober) -> Outcome:
    async with sync_client(at.url(user="ann"), init=INIT, token="ann-t") as client:
        await synced(client)
        refused = await at.refusal({"desiredQueriesPatch": []}, "bob-t", client=f"{at.client}-2", user="bob")
        await client.say("ping", {})
        return (*refused, await client.hear("pong"))


async def replaced(at: Prober) -> Outcome:
    async with sync_client(at.url(), init=INIT) as first:
        cookie = await synced(first)
        async with sync_client(at.url(cookie=cookie), init={"desiredQueriesPatch": []}) as second:
            await second.hear("pokeEnd")
            return await ending(first)


async def resumed(at: Prober) -> Outcome:
    async with sync_client(at.url(cookie=await at.cookie()), init={"desiredQueriesPatch": []}) as client:
        start, end = await client.hear("pokeStart"), await client.hear("pokeEnd")
        parts = [frame for frame in client.frames if frame[0] == "pokePart"]
        return start["baseCookie"] == end["cookie"], parts


async def early_messages(at: Prober) -> Outcome:
    async with sync_client(at.url()) as client:
        await client.say("changeDesiredQueries", {"desiredQueriesPatch": [{"op": "del", "hash": "x"}]})
        await client.say("ping", {})
        await client.hear("pong")
        await client.say("initConnection", INIT)
        await synced(client)
        return tuple(sorted({frame[0] for frame in client.frames}))


async def binary(at: Prober) -> Outcome:
    async with sync_client(at.url(), init=INIT) as client:
        await synced(client)
        await client.socket.send(b'["ping",{}]')
        return (await client.hear("pong"),)


async def uninvited_inspector(at: Prober) -> Outcome:
    async with sync_client(at.url(), init=INIT) as client:
        await synced(client)
        await client.say("inspect", {"op": "version", "id": "1"})
        return (await client.hear("inspect"),)


async def inspector(at: Prober) -> Outcome:
    """What an inspector with the password is told, without what is measured."""
    questions = (
        {"op": "authenticate", "id": "0", "value": "wrong"},
        {"op": "authenticate", "id": "1", "value": PASSWORD},
        {"op": "queries", "id": "2"},
        {"op": "metrics", "id": "3"},
        {"op": "analyze-query", "id": "4", "ast": ITEMS["ast"], "options": {"vendedRows": True}},
    )
    async with sync_client(at.url(), init=INIT) as client:
        await synced(client)
        answers = []
        for question in questions:
            await client.say("inspect", question)
            answers.append(await client.hear("inspect"))
    queries = [
        {name: each[name] for name in ("queryID", "name", "args", "got", "deleted", "ttl", "rowCount")}
        for each in answers[2]["value"]
    ]
    shapes = [sorted(answers[2]["value"][0]), sorted(answers[3]["value"])]
    return *answers[:2], queries, shapes, analysis(answers[4]["value"])


def analysis(told: dict[str, Any]) -> list[Any]:
    """What an analysis says of rows, in a form that does not depend on how a cache asks its tables."""
    read = {table: list(chain.from_iterable(asked.values())) for table, asked in told["readRows"].items()}
    counts = {table: sum(asked.values()) for table, asked in told["readRowCountsByQuery"].items()}
    rows = [
        [table, [{name: value for name, value in row.items() if name != "_0_version"} for row in found]]
        for tables in (told["syncedRows"], read)
        for table, found in sorted(tables.items())
    ]
    return [told["syncedRowCount"], told["readRowCount"], counts, rows]


async def unknown_named_query(at: Prober) -> Outcome:
    asked = {**INIT, "desiredQueriesPatch": [{"op": "put", "hash": "n1", "name": "nobodyKnows", "args": []}]}
    async with sync_client(at.url(), init=asked) as client:
        return (await client.hear("transformError"),)


async def deleted_clients(at: Prober) -> Outcome:
    async with sync_client(at.url(), init=INIT) as client:
        await synced(client)
        await client.say("deleteClients", {"clientIDs": ["unknown"], "clientGroupIDs": ["g"]})
        return (await client.hear("deleteClients"),)


PROBES: dict[str, Callable[[Prober], Awaitable[Outcome]]] = {
    "version 29": lambda at: at.refusal(INIT, version=29),
    "version 52": lambda at: at.refusal(INIT, version=52),
    "no client id": lambda at: at.refusal(INIT, clientID="-"),
    "no timestamp": lambda at: at.refusal(INIT, ts="-"),
    "bad last mutation id": lambda at: at.refusal(INIT, lmid="many"),
    "token without a user": lambda at: at.refusal(INIT, token="t"),
    "refused credentials": lambda at: at.refusal(INIT, token="stale", user="ann"),
    "application out of order": lambda at: at.refusal(INIT, token="broken", user="ann"),
    "application talking nonsense": lambda at: at.refusal(INIT, token="nonsense", user="ann"),
    "mutation with the application out of order": lambda at: at.said(
        "push", push({**MUTATION, "clientID": at.client, "name": "broken"}, at.group)
    ),
    "mutation with the application talking nonsense": lambda at: at.said(
        "push", push({**MUTATION, "clientID": at.client, "name": "nonsense"}, at.group)
    ),
    "new group without a schema": lambda at: at.refusal({"desiredQueriesPatch": []}),
    "cookie of an unknown group": lambda at: at.refusal(INIT, cookie="07"),
    "cookie of the future": future_cookie,
    "cookie that is none": lambda at: at.refusal(INIT, cookie="!"),
    "schema other than before": other_schema,
    "schema with an unknown column": lambda at: at.refusal({**INIT, "clientSchema": WRONG_COLUMN}),
    "schema with another type": lambda at: at.refusal({**INIT, "clientSchema": WRONG_TYPE}),
    "schema with another key": lambda at: at.refusal({**INIT, "clientSchema": WRONG_KEY}),
    "schema with an unknown table": lambda at: at.refusal({**INIT, "clientSchema": WRONG_TABLE}),
    "first message malformed": lambda at: at.refusal({"desiredQueriesPatch": [], "extra": 1}),
    "query of an unknown table": lambda at: at.said(
        "changeDesiredQueries", {"desiredQueriesPatch": [{"op": "put", "hash": "x", "ast": {"table": "thing"}}]}
    ),
    "query of an unknown column": lambda at: at.said(
        "changeDesiredQueries",
        {"desiredQueriesPatch": [{"op": "put", "hash": "x", "ast": {"table": "item", "orderBy": [["nope", "asc"]]}}]},
    ),
    "no JSON": lambda at: at.after("hello"),
    "no array": lambda at: at.after("{}"),
    "unknown tag": lambda at: at.said("hello", {}),
    "unknown field": lambda at: at.said("ping", {"extra": 1}),
    "wrong type": lambda at: at.said("updateAuth", {"auth": 1}),
    "push of another group": lambda at: at.said("push", push(MUTATION, "other")),
    "legacy mutation": lambda at: at.said("push", push(CRUD, at.group)),
    "first message twice": lambda at: at.said("initConnection", INIT),
    "oversize frame": lambda at: at.after(json.dumps(["updateAuth", {"auth": "x" * (11 * 1024 * 1024)}])),
    "another user of the group": other_user,
    "a second socket of a client": replaced,
    "nothing new after a reconnect": resumed,
    "messages before the first": early_messages,
    "a binary frame": binary,
    "an inspector with the password": inspector,
    "an inspector without a password": uninvited_inspector,
    "a named query nobody knows": unknown_named_query,
    "deleted clients": deleted_clients,
}


@pytest.fixture(scope="module")
def ports(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Our cache and the official one over one source, by name."""
    folder = tmp_path_factory.mktemp("refusals")
    with ExitStack() as stack:
        source = stack.enter_context(TinySource(insert(1, "one")))
        app = stack.enter_context(AppServer(sqlite_app_store(folder / "app.db"), "", "ann-t", "bob-t"))
        ours = stack.enter_context(
            ReferenceCache(source.url, folder, settings={**app.settings, "ZERO_ADMIN_PASSWORD": PASSWORD})
        )
        stack.callback(lambda: print(ours.process.tail(80)))
        official = stack.enter_context(zero_caches(postgres, folder))(source.url, **app.settings)
        ours.start()
        official.start()
        until(lambda: is_listening(official.port), "the official cache to listen, which it does after it says so")
        yield {"ours": ours.port, "official": official.port}


@pytest.mark.parametrize("name", PROBES)
async def test_the_answer_is_the_official_one(ports: dict[str, int], name: str) -> None:
    probes = (PROBES[name](Prober(ports[which], name.replace(" ", "-"))) for which in ("ours", "official"))
    ours, official = await asyncio.gather(*probes)
    assert ours == official
