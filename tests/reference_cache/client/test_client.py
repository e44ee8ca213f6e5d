"""The client against a cache that says what a test wants: connections, errors, queries and mutations as they travel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from reference_cache.client import (
    Client,
    ClientError,
    Disconnected,
    MutationLost,
    MutationRefused,
    MutationUnsettled,
    QueryRefused,
    Transaction,
    named_query,
)
from reference_cache.client import session as client_session
from reference_cache.client import socket as client_socket
from reference_cache.client.connection import MAX_INVALID_REQUESTS
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import schema, table
from tests.reference_cache.client.scripted_cache import SECONDS, ScriptedCache, Visit, scripted_cache

ITEMS = schema([table("item", {"id": "string", "count": "number"})], {})
ALL = Queries(ITEMS).table("item")


def put(tx: Transaction, args: Any) -> str:
    tx.upsert("item", args)
    return "done"


class Stage:
    """A scripted cache, and clients of it."""

    def __init__(self, cache: ScriptedCache, stack: AsyncExitStack) -> None:
        self.cache = cache
        self._stack = stack

    async def client(self, **options: Any) -> Client:
        return await self._stack.enter_async_context(
            Client(self.cache.url, ITEMS, **{"mutators": {"item.put": put}, **options})
        )

    async def connected(self, **options: Any) -> tuple[Client, Visit]:
        """A client that has got an empty first poke."""
        client = await self.client(**options)
        visit = await (await self.cache.visit()).greet()
        await visit.poke(None, "01", lastMutationIDChanges={})
        await client.wait_for("connected")
        return client, visit


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with asyncio.timeout(4 * SECONDS), scripted_cache() as cache, AsyncExitStack() as stack:
        yield Stage(cache, stack)


def row(id: str, count: int) -> dict[str, Any]:
    return {"op": "put", "tableName": "item", "value": {"id": id, "count": count}}


def got(view: Any) -> list[dict[str, Any]]:
    return [{"op": "put", "hash": view.hash}]


# --- connecting ---


async def test_a_new_client_says_who_it_is_what_it_wants_and_what_it_knows(stage: Stage) -> None:
    client = Client(stage.cache.url, ITEMS, user_id="u", auth="token", offline=True)
    async with client:
        view = client.query(ALL, ttl=500)
        client.connect()
        visit = await stage.cache.visit()
    request = visit.request
    assert (request.version, request.user_id, request.auth_token, request.base_cookie) == (51, "u", "token", None)
    assert request.client_id == client.client_id
    put_query = {"op": "put", "hash": view.hash, "ast": {"table": "item"}, "ttl": 500}
    assert visit.init["desiredQueriesPatch"] == [put_query]
    columns = {"count": {"type": "number"}, "id": {"type": "string"}}
    assert visit.init["clientSchema"] == {"tables": {"item": {"columns": columns, "primaryKey": ["id"]}}}
    assert visit.init["activeClients"] == [client.client_id]


async def test_a_broken_connection_is_replaced_at_once_from_the_cookie(stage: Stage) -> None:
    _, visit = await stage.connected()
    await visit.socket.close()
    again = await stage.cache.visit()
    assert again.request.base_cookie == "01"
    assert again.request.client_id == visit.request.client_id
    assert "clientSchema" not in again.init


async def test_a_poke_under_way_when_the_connection_broke_is_forgotten(stage: Stage) -> None:
    client, visit = await stage.connected()
    view = client.query(ALL)
    await visit.say("pokeStart", {"pokeID": "p", "baseCookie": "01"})
    await visit.say("pokePart", {"pokeID": "p", "rowsPatch": [row("half", 1)]})
    await visit.socket.close()
    again = await (await stage.cache.visit()).greet()
    assert again.request.base_cookie == "01"
    await again.poke("01", "02", rowsPatch=[row("whole", 1)], gotQueriesPatch=got(view))
    assert await view.complete() == [{"id": "whole", "count": 1}]


async def test_a_first_message_too_long_for_the_handshake_follows_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_socket, "HEADER_LIMIT", 20)
    await stage.client()
    visit = await stage.cache.visit()
    assert visit.request.init is None
    await visit.greet()
    init = await visit.hear("initConnection")
    assert "clientSchema" in init
    assert "activeClients" not in init


async def test_a_quiet_cache_is_asked_whether_it_lives_and_left_if_it_does_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_socket, "QUIET_SECONDS", 0.05)
    _, visit = await stage.connected()
    await visit.hear("ping")
    await visit.say("pong", {})
    await visit.hear("ping")
    again = await stage.cache.visit()
    assert again.request.ws_id != visit.request.ws_id


async def test_a_connection_on_which_nothing_is_confirmed_is_replaced_and_what_is_queued_pushed_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, visit = await stage.connected()
    monkeypatch.setattr(client_session, "CONFIRM_TIMEOUT_SECONDS", 0.0)
    client.mutate.item.put({"id": "a", "count": 1})
    await visit.hear("push")
    await visit.say("pong", {})
    again = await stage.cache.visit()
    monkeypatch.undo()
    await again.greet()
    pushed = await again.hear("push")
    assert [mutation["id"] for mutation in pushed["mutations"]] == [1]
    await again.poke("01", "02", lastMutationIDChanges={client.client_id: 1})
    await client.drained()


async def test_a_connection_without_mutations_is_kept_however_long_it_is_quiet(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, visit = await stage.connected()
    client.mutate.item.put({"id": "a", "count": 1})
    await visit.hear("push")
    await visit.poke("01", "02", lastMutationIDChanges={client.client_id: 1})
    await client.drained()
    monkeypatch.setattr(client_session, "CONFIRM_TIMEOUT_SECONDS", 0.0)
    await visit.poke("02", "03", lastMutationIDChanges={})
    client.query(ALL)
    await visit.hear("changeDesiredQueries")
    assert not visit.ended.is_set()


async def test_an_offline_client_stays_offline_until_connect(stage: Stage) -> None:
    client, visit = await stage.connected()
    client.disconnect()
    await asyncio.wait_for(visit.ended.wait(), SECONDS)
    assert client.state.name == "offline"
    client.connect()
    await (await stage.cache.visit()).greet()
    await client.wait_for("connected")


async def test_closing_ends_the_connection_and_calls_that_wait_for_it(stage: Stage) -> None:
    client, visit = await stage.connected()
    view = client.query(ALL)
    waiting = asyncio.create_task(client.wait_for("offline"))
    await asyncio.sleep(0)
    await client.close()
    await asyncio.wait_for(visit.ended.wait(), SECONDS)
    assert client.state.name == "closed"
    with pytest.raises(Disconnected):
        await waiting
    assert view.result == []


# --- errors ---


async def test_a_cache_may_send_the_client_elsewhere_once(stage: Stage) -> None:
    _, visit = await stage.connected()
    await visit.fail("Rehome", reconnectParams={"shard": "7"}, maxBackoffMs=1)
    second = await stage.cache.visit()
    assert "shard=7" in second.target
    await (await second.greet()).socket.close()
    assert "shard=7" not in (await stage.cache.visit()).target


@pytest.mark.parametrize("kind", ["ClientNotFound", "InvalidConnectionRequestBaseCookie"])
async def test_a_client_the_cache_forgot_begins_from_nothing_and_keeps_what_is_queued(stage: Stage, kind: str) -> None:
    client, visit = await stage.connected()
    view = client.query(ALL)
    await visit.poke("01", "02", rowsPatch=[row("a", 1)], gotQueriesPatch=got(view))
    await view.complete()
    mutation = client.mutate.item.put({"id": "b", "count": 2})
    await visit.fail(kind)
    again = await (await stage.cache.visit()).greet()
    assert again.request.base_cookie is None
    assert again.request.client_id == visit.request.client_id
    assert "clientSchema" in again.init
    assert view.result == [{"id": "b", "count": 2}]
    assert view.status == "unknown"
    assert (await again.hear("push"))["mutations"][0]["id"] == mutation.id


async def test_a_client_forgotten_twice_becomes_another_and_says_what_is_lost(stage: Stage) -> None:
    client, visit = await stage.connected()
    mutation = client.mutate.item.put({"id": "b", "count": 2})
    await visit.fail("ClientNotFound")
    await (await stage.cache.visit()).fail("ClientNotFound")
    third = await stage.cache.visit()
    assert third.request.client_id != visit.request.client_id
    with pytest.raises(MutationLost):
        await mutation
    assert client.queued == []


async def test_an_error_for_people_stops_the_client_until_they_say_go(stage: Stage) -> None:
    client, visit = await stage.connected()
    await visit.fail("SchemaVersionNotSupported")
    state = await client.wait_for("error")
    assert state.error is not None
    assert state.error.kind == "SchemaVersionNotSupported"
    with pytest.raises(Disconnected, match="SchemaVersionNotSupported"):
        await client.wait_for("connected")
    client.connect()
    await (await stage.cache.visit()).greet()
    await client.wait_for("connected")


async def test_a_request_that_was_called_invalid_is_made_again_and_what_is_queued_arrives(stage: Stage) -> None:
    client, visit = await stage.connected()
    client.mutate.item.put({"id": "a", "count": 1})
    await visit.socket.close()
    for _ in range(MAX_INVALID_REQUESTS):
        await (await (await stage.cache.visit()).greet()).fail("InvalidConnectionRequest")
    again = await (await stage.cache.visit()).greet()
    assert again.request.base_cookie == "01"
    await again.hear("push")
    await again.poke("01", "02", lastMutationIDChanges={client.client_id: 1})
    await client.drained()


async def test_only_a_connection_that_worked_makes_up_for_invalid_requests(stage: Stage) -> None:
    client, visit = await stage.connected()
    await visit.fail("InvalidConnectionRequest")
    for cookie in ("02", "03"):
        await (await stage.cache.visit()).fail("InvalidConnectionRequest")
        again = await (await stage.cache.visit()).greet()
        await again.poke(f"{int(cookie) - 1:02}", cookie, lastMutationIDChanges={})
        await again.socket.close()
    for _ in range(MAX_INVALID_REQUESTS):
        await (await stage.cache.visit()).fail("InvalidConnectionRequest")
    await (await stage.cache.visit()).fail("InvalidConnectionRequest")
    assert (await client.wait_for("error")).error is not None


async def test_calls_that_wait_for_the_queue_or_a_result_raise_when_the_client_stops(stage: Stage) -> None:
    client, visit = await stage.connected()
    client.mutate.item.put({"id": "a", "count": 1})
    drained, result = asyncio.create_task(client.drained()), asyncio.create_task(client.run(ALL))
    await visit.hear("changeDesiredQueries")
    await visit.fail("Internal")
    for waiting in (drained, result):
        with pytest.raises(Disconnected, match="Internal"):
            await waiting
    with pytest.raises(Disconnected, match="Internal"):
        await client.drained()
    client.connect()
    drained = asyncio.create_task(client.drained())
    again = await (await stage.cache.visit()).greet()
    await again.hear("push")
    await again.poke("01", "02", lastMutationIDChanges={client.client_id: 1})
    await drained


async def test_a_view_says_why_it_cannot_be_complete_when_the_client_has_stopped(stage: Stage) -> None:
    client, visit = await stage.connected()
    with client.query(ALL) as view:
        waiting = asyncio.create_task(view.complete())
        await visit.hear("changeDesiredQueries")
        await visit.fail("Internal")
        with pytest.raises(Disconnected, match="Internal"):
            await waiting
        with pytest.raises(Disconnected, match="Internal"):
            await view.complete()
        client.mutate.item.put({"id": "a", "count": 1})
        assert await view.until(bool), "rows of the client itself need no server"


async def test_closing_the_client_ends_the_wait_for_its_queue(stage: Stage) -> None:
    client, _ = await stage.connected()
    client.mutate.item.put({"id": "a", "count": 1})
    drained = asyncio.create_task(client.drained())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(Disconnected, match="closed"):
        await drained


async def test_a_wait_after_connect_does_not_raise_the_earlier_error(stage: Stage) -> None:
    client, visit = await stage.connected()
    await visit.fail("Internal")
    await client.wait_for("error")
    client.connect()
    connected = asyncio.create_task(client.wait_for("connected"))
    await asyncio.sleep(0)
    await (await stage.cache.visit()).greet()
    assert (await connected).error is None


async def test_a_cache_that_breaks_the_protocol_stops_the_client(stage: Stage) -> None:
    client, visit = await stage.connected()
    await visit.say("nonsense", {})
    state = await client.wait_for("error")
    assert "broke the protocol" in str(state.error)


async def test_a_poke_from_another_cookie_is_asked_for_again(stage: Stage) -> None:
    _, visit = await stage.connected()
    await visit.poke("07", "08")
    assert (await stage.cache.visit()).request.base_cookie == "01"


async def test_refused_credentials_are_fetched_again(stage: Stage) -> None:
    tokens = iter(["stale", "fresh"])

    async def fetch() -> str:
        return next(tokens)

    await stage.client(user_id="u", auth=fetch)
    first = await stage.cache.visit()
    assert first.request.auth_token == "stale"
    await (await first.greet()).fail("TransformFailed", reason="http", status=401, queryIDs=[])
    assert (await stage.cache.visit()).request.auth_token == "fresh"


async def test_credentials_that_cannot_be_fetched_now_are_fetched_later(stage: Stage) -> None:
    answers = iter([OSError("no network"), "token"])

    async def fetch() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    await stage.client(user_id="u", auth=fetch)
    assert (await stage.cache.visit()).request.auth_token == "token"


async def test_without_a_way_to_fetch_credentials_the_program_is_asked(stage: Stage) -> None:
    client, visit = await stage.connected(user_id="u", auth="stale")
    await visit.fail("Unauthorized")
    await client.wait_for("needs-auth")
    client.connect("fresh")
    assert (await stage.cache.visit()).request.auth_token == "fresh"


async def test_new_credentials_are_sent_to_a_connected_cache(stage: Stage) -> None:
    client, visit = await stage.connected(user_id="u", auth="one")
    client.connect("two")
    assert await visit.hear("updateAuth") == {"auth": "two"}


@pytest.mark.parametrize("url", ["", "127.0.0.1:4848", "ftp://host"])
def test_an_invalid_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ClientError, match="bad-url"):
        Client(url, ITEMS)


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(ClientError, match="not-open"):
        Client("http://127.0.0.1:1", ITEMS).query(ALL)


# --- queries ---


async def test_queries_of_one_turn_travel_together_and_are_wanted_while_anyone_wants_them(stage: Stage) -> None:
    client, visit = await stage.connected()
    some = named_query("some", lambda args: ALL.where("count", args))
    first, second, third = client.query(ALL), client.query(ALL), client.query(some(3))
    asked = (await visit.hear("changeDesiredQueries"))["desiredQueriesPatch"]
    assert [(op["op"], op["hash"]) for op in asked] == [("put", first.hash), ("put", third.hash)]
    assert (asked[1]["name"], asked[1]["args"]) == ("some", [3])
    first.close()
    third.close()
    assert (await visit.hear("changeDesiredQueries"))["desiredQueriesPatch"] == [{"op": "del", "hash": third.hash}]
    second.close()
    assert (await visit.hear("changeDesiredQueries"))["desiredQueriesPatch"] == [{"op": "del", "hash": second.hash}]


async def test_after_a_reconnect_only_what_the_cache_has_not_confirmed_is_said(stage: Stage) -> None:
    client, visit = await stage.connected()
    kept, dropped = client.query(ALL), client.query(ALL.limit(1))
    await visit.hear("changeDesiredQueries")
    desired = {client.client_id: [{"op": "put", "hash": view.hash} for view in (kept, dropped)]}
    await visit.poke("01", "02", desiredQueriesPatches=desired, gotQueriesPatch=got(kept))
    await kept.complete()
    client.disconnect()
    dropped.close()
    new = client.query(ALL.limit(2))
    client.connect()
    again = await stage.cache.visit()
    assert [(op["op"], op["hash"]) for op in again.init["desiredQueriesPatch"]] == [
        ("put", new.hash),
        ("del", dropped.hash),
    ]


async def test_a_refused_query_is_an_error_of_its_view_alone(stage: Stage) -> None:
    client, visit = await stage.connected()
    good, bad = client.query(ALL), client.query(named_query("bad", lambda: ALL)())
    await visit.say("transformError", [{"error": "app", "id": bad.hash, "name": "bad", "message": "no such query"}])
    with pytest.raises(QueryRefused, match="no such query"):
        await bad.complete()
    await visit.poke("01", "02", gotQueriesPatch=got(good))
    assert await good.complete() == []


async def test_run_gives_a_complete_result_once(stage: Stage) -> None:
    client, visit = await stage.connected()
    running = asyncio.create_task(client.run(ALL))
    hash = (await visit.hear("changeDesiredQueries"))["desiredQueriesPatch"][0]["hash"]
    await visit.poke("01", "02", rowsPatch=[row("a", 1)], gotQueriesPatch=[{"op": "put", "hash": hash}])
    assert await running == [{"id": "a", "count": 1}]
    assert (await visit.hear("changeDesiredQueries"))["desiredQueriesPatch"] == [{"op": "del", "hash": hash}]


# --- mutations ---


async def test_mutations_are_pushed_in_order_and_again_on_the_next_connection(stage: Stage) -> None:
    client, visit = await stage.connected()
    first = client.mutate.item.put({"id": "a", "count": 1})
    second = client.mutate["item.put"]({"id": "b", "count": 2})
    pushed = [(await visit.hear("push"))["mutations"] for _ in range(2)]
    assert [(each["id"], each["name"], each["args"]) for (each,) in pushed] == [
        (1, "item.put", [{"id": "a", "count": 1}]),
        (2, "item.put", [{"id": "b", "count": 2}]),
    ]
    assert await first.client == "done"
    await visit.poke("01", "02", lastMutationIDChanges={client.client_id: 1}, rowsPatch=[row("a", 1)])
    await first
    await visit.socket.close()
    again = await (await stage.cache.visit()).greet()
    assert (await again.hear("push"))["mutations"][0]["id"] == second.id
    assert not second.server.done()


async def test_a_refused_mutation_raises_once_it_is_taken_back_and_its_result_is_acknowledged(stage: Stage) -> None:
    client, visit = await stage.connected()
    view = client.query(ALL)
    mutation = client.mutate.item.put({"id": "a", "count": 1})
    assert view.result == [{"id": "a", "count": 1}]
    outcome = {"id": {"clientID": client.client_id, "id": 1}, "result": {"error": "app", "message": "no", "details": 7}}
    await visit.poke(
        "01",
        "02",
        lastMutationIDChanges={client.client_id: 1},
        mutationsPatch=[{"op": "put", "mutation": outcome}],
    )
    with pytest.raises(MutationRefused, match="no") as refused:
        await mutation
    assert refused.value.details == 7
    assert view.result == []
    assert await visit.hear("ackMutationResponses") == {"clientID": client.client_id, "id": 1}
    await visit.socket.close()
    again = await (await stage.cache.visit()).greet()
    await again.hear("ackMutationResponses")
    await again.poke("02", "03", mutationsPatch=[{"op": "del", "id": {"clientID": client.client_id, "id": 1}}])


async def test_a_failed_push_is_reported_and_stays_queued(stage: Stage) -> None:
    client, visit = await stage.connected()
    mutation = client.mutate.item.put({"id": "a", "count": 1})
    ids = [{"clientID": client.client_id, "id": 1}]
    await visit.fail("PushFailed", reason="http", status=500, mutationIDs=ids)
    with pytest.raises(MutationUnsettled, match="PushFailed"):
        await mutation
    await client.wait_for("error")
    assert [each.id for each in client.queued] == [1]
    client.connect()
    again = await (await stage.cache.visit()).greet()
    await again.hear("push")
    await again.poke("01", "02", lastMutationIDChanges={client.client_id: 1})
    await client.drained()


async def test_a_push_refused_for_its_credentials_is_not_reported_as_a_failure(stage: Stage) -> None:
    client, visit = await stage.connected(user_id="u", auth="stale")
    mutation = client.mutate.item.put({"id": "a", "count": 1})
    await visit.fail("PushFailed", reason="http", status=401, mutationIDs=[{"clientID": client.client_id, "id": 1}])
    await client.wait_for("needs-auth")
    assert not mutation.server.done()


def test_an_unknown_mutator_is_reported_with_the_nearest_name(tmp_path: Path) -> None:
    client = Client("http://127.0.0.1:1", ITEMS, mutators={"item.put": put})
    with pytest.raises(AttributeError, match=r"did you mean 'item.put'"):
        _ = client.mutate.item.putt


async def test_what_is_queued_survives_the_end_of_the_client(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "client.db"
    async with Client(stage.cache.url, ITEMS, mutators={"item.put": put}, store=path, offline=True) as client:
        client.mutate.item.put({"id": "a", "count": 1})
        name = client.client_id
    client, visit = await stage.connected(store=path)
    assert client.client_id == name
    assert (await visit.hear("push"))["mutations"][0]["args"] == [{"id": "a", "count": 1}]
    assert client.query(ALL).result == [{"id": "a", "count": 1}]


async def test_a_mutator_may_be_a_coroutine_that_waits_for_nothing(stage: Stage) -> None:
    async def shared(tx: Any, args: Any) -> None:
        await tx.upsert("item", args)

    async def waiting(tx: Any, args: Any) -> None:
        await asyncio.sleep(1)

    client = await stage.client(mutators={"shared": shared, "waiting": waiting}, offline=True)
    client.mutate.shared({"id": "a", "count": 1})
    assert client.query(ALL).result == [{"id": "a", "count": 1}]
    with pytest.raises(ClientError, match="mutator-waits"):
        client.mutate.waiting({})
    assert [each.name for each in client.queued] == ["shared"]
