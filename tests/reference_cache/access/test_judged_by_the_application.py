"""Groups of clients whose credentials only the application can judge: on a running cache, over raw sockets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference_cache.access.conftest import AGAIN, INIT, SCHEMA, Running, is_served, refusal, rows, synced
from tests.support.fakes.sync_client import sync_client

pytestmark = pytest.mark.timeout(300)
WITH_APPLICATION = True
SETTINGS = {"ZERO_QUERY_FORWARD_COOKIES": "true"}
UNAUTHORIZED = ("Unauthorized", 3000)


def named(name: str, hash: str = "h") -> dict[str, Any]:
    put = {"op": "put", "hash": hash, "name": name, "args": []}
    return {"desiredQueriesPatch": [put], "clientSchema": SCHEMA}


async def test_where_no_user_is_named_only_known_tokens_join(running: Running) -> None:
    url = running.url("ann1", "g1", user="ann")
    async with sync_client(url, init=INIT, token="first") as ann:
        await synced(ann)
        await ann.say("updateAuth", {"auth": "second"})
        assert await is_served(ann)
    running.restart()
    async with sync_client(running.url("evil", "g1", user="ann"), init=INIT) as nobody:
        assert await refusal(nobody) == UNAUTHORIZED
    async with sync_client(running.url("evil", "g1", user="ann"), init=INIT, token="evil") as somebody:
        assert (await somebody.error())["kind"] == "ClientNotFound"
        assert rows(somebody) == []
    for token in ("first", "second"):
        async with sync_client(running.url("ann2", "g1", user="ann"), init=INIT, token=token) as tab:
            await synced(tab)


async def test_where_the_user_is_named_any_of_her_tokens_joins(running: Running) -> None:
    url = running.url("ann1", "g2", user="ann")
    async with sync_client(url, init=INIT, token="named-ann-1") as ann:
        cookie = await synced(ann)
    async with sync_client(
        running.url("ann1", "g2", user="ann", cookie=cookie), init=AGAIN, token="named-ann-2"
    ) as ann:
        await ann.hear("pokeEnd")
    async with sync_client(running.url("evil", "g2", user="ann"), init=INIT, token="named-bob-1") as bob:
        assert await refusal(bob) == UNAUTHORIZED
    async with sync_client(running.url("evil", "g2", user="ann"), init=INIT) as nobody:
        assert await refusal(nobody) == UNAUTHORIZED
    async with sync_client(running.url("evil", "g2", user="ann"), init=INIT, token="unnamed") as somebody:
        assert (await somebody.error())["kind"] == "ClientNotFound"


async def test_an_application_that_begins_to_name_the_user_keeps_the_groups(running: Running) -> None:
    url = running.url("ann1", "g3", user="ann")
    async with sync_client(url, init=INIT, token="unnamed") as ann:
        cookie = await synced(ann)
    again = running.url("ann1", "g3", user="ann", cookie=cookie)
    async with sync_client(again, init=AGAIN, token="named-ann-1") as ann:
        await ann.hear("pokeEnd")
    async with sync_client(again, init=AGAIN, token="unnamed") as ann:
        await ann.hear("pokeEnd")


async def test_cookies_are_credentials_too(running: Running) -> None:
    async with sync_client(running.url("ann1", "g4"), init=INIT, headers={"Cookie": "session=1"}) as ann:
        await synced(ann)
    async with sync_client(running.url("evil", "g4"), init=INIT) as nobody:
        assert await refusal(nobody) == UNAUTHORIZED
    async with sync_client(running.url("evil", "g4"), init=INIT, headers={"Cookie": "session=2"}) as somebody:
        assert (await somebody.error())["kind"] == "ClientNotFound"
    async with sync_client(running.url("ann2", "g4"), init=INIT, headers={"Cookie": "session=1"}) as tab:
        await synced(tab)


async def test_a_group_of_an_older_file_without_a_confirmed_user_starts_over(running: Running) -> None:
    async with sync_client(running.url("ann1", "g5", user="ann"), init=INIT, token="first") as ann:
        cookie = await synced(ann)
    running.restart(running.forget_owners)
    for token in ("first", "evil", None):
        again = running.url("ann1", "g5", user="ann", cookie=cookie)
        async with sync_client(again, init=AGAIN, token=token) as client:
            assert (await client.error())["kind"] == "ClientNotFound"
    async with sync_client(
        running.url("ann1", "g5", user="ann", cookie=cookie), init=AGAIN, token="named-ann-1"
    ) as ann:
        await ann.hear("pokeEnd")


async def test_new_credentials_that_are_refused_end_the_connection_at_once(running: Running) -> None:
    async with sync_client(running.url("ann1", "g6", user="ann"), init=INIT, token="first") as ann:
        await synced(ann)
        await ann.say("updateAuth", {"auth": "bad"})
        error = await ann.error()
        assert (error["kind"], error["status"]) == ("TransformFailed", 401)


async def test_a_hash_says_nothing_of_what_a_query_means(running: Running) -> None:
    async with sync_client(running.url("a", "g7"), init=named("two", "same")) as first:
        await synced(first)
    async with sync_client(running.url("b", "g8"), init=named("one", "same")) as second:
        await synced(second)
    assert (rows(first), rows(second)) == (["two"], ["one"])


async def test_a_client_cannot_clean_up_results_itself(running: Running) -> None:
    argument = {"type": "bulk", "clientGroupID": "g1", "clientIDs": ["victim"]}
    mutation = {"type": "custom", "id": 1, "clientID": "c", "name": "_zero_cleanupResults", "args": [argument]}
    push = {"clientGroupID": "g9", "mutations": [{**mutation, "timestamp": 1}], "pushVersion": 1, "timestamp": 1}
    async with sync_client(running.url("c", "g9"), init=INIT) as client:
        await synced(client)
        await client.say("push", {**push, "requestID": "r"})
        assert (await client.error())["kind"] == "InvalidPush"
    assert "victim" not in str(running.app.requests)


async def test_nothing_is_pushed_for_a_client_that_was_not_admitted(running: Running) -> None:
    async with sync_client(running.url("ann1", "g10", user="ann"), init=INIT, token="first") as ann:
        await synced(ann)
    mutation = {"type": "custom", "id": 1, "clientID": "ann1", "name": "stolen", "args": [], "timestamp": 1}
    push = {"clientGroupID": "g10", "mutations": [mutation], "pushVersion": 1, "timestamp": 1, "requestID": "r"}
    async with sync_client(running.url("evil", "g10", user="ann")) as intruder:
        await intruder.say("push", push)
        await intruder.say("initConnection", INIT)
        assert await refusal(intruder) == UNAUTHORIZED
    assert "stolen" not in str(running.app.requests)
