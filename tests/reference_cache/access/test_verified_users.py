"""A group that was opened with a signed token belongs to that token's user: on a running cache, over raw sockets."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.reference_cache.access.conftest import (
    AGAIN,
    INIT,
    SCHEMA,
    SECRET,
    Running,
    is_served,
    refusal,
    row_patches,
    rows,
    synced,
)
from tests.reference_cache.sync_server.tokens import hs256
from tests.support.fakes.sync_client import sync_client
from tests.support.fakes.tiny_source import insert

pytestmark = pytest.mark.timeout(300)
SETTINGS = {"ZERO_AUTH_SECRET": SECRET}
UNAUTHORIZED = ("Unauthorized", 3000)


def token(user: str = "ann", **claims: Any) -> str:
    return hs256(SECRET, sub=user, **claims)


async def test_nobody_joins_with_a_user_id_alone(running: Running) -> None:
    async with sync_client(running.url("ann1", "g1", user="ann"), init=INIT, token=token()) as ann:
        await synced(ann)
        async with sync_client(running.url("evil", "g1", user="ann"), init=INIT) as intruder:
            assert await refusal(intruder) == UNAUTHORIZED
        running.source.commit(insert(3, "three"))
        await ann.hear("pokePart", where=lambda body: "three" in str(body))
        assert "three" not in rows(intruder)
        assert not [op for op in row_patches(ann) if op["op"] == "del"]


async def test_a_group_is_remembered_across_a_restart(running: Running) -> None:
    async with sync_client(running.url("ann1", "g2", user="ann"), init=INIT, token=token(iat=1)) as ann:
        cookie = await synced(ann)
    running.restart()
    for given in ({}, {"cookie": cookie}):
        async with sync_client(running.url("evil", "g2", user="ann", **given), init=INIT) as intruder:
            assert await refusal(intruder) == UNAUTHORIZED
            assert rows(intruder) == []
    async with sync_client(running.url("ann1", "g2", user="ann", cookie=cookie), init=AGAIN, token=token(iat=2)) as ann:
        await ann.hear("pokeEnd")
        assert await is_served(ann)


async def test_tabs_and_renewed_tokens_of_the_same_user_are_served(running: Running) -> None:
    async with (
        sync_client(running.url("ann1", "g3", user="ann"), init=INIT, token=token(iat=1)) as first,
        sync_client(running.url("ann2", "g3", user="ann"), init=INIT, token=token(iat=2)) as second,
    ):
        await synced(first)
        await synced(second)
        await first.say("updateAuth", {"auth": token(iat=3)})
        assert await is_served(first)
        assert await is_served(second)


async def test_a_group_that_logs_in_is_closed_to_those_who_have_not(running: Running) -> None:
    async with (
        sync_client(running.url("ann1", "g4", user="ann"), init=INIT) as ann,
        sync_client(running.url("ann2", "g4", user="ann"), init=INIT) as other,
    ):
        await synced(ann)
        await synced(other)
        await ann.say("updateAuth", {"auth": token()})
        assert (await other.error())["kind"] == "Unauthorized"
        assert await is_served(ann)
        async with sync_client(running.url("ann2", "g4", user="ann"), init=INIT, token=token()) as other:
            await synced(other)


async def test_a_group_of_an_older_file_is_its_verified_users(running: Running) -> None:
    async with sync_client(running.url("ann1", "g5", user="ann"), init=INIT, token=token()) as ann:
        cookie = await synced(ann)
    running.restart(running.forget_owners)
    async with sync_client(running.url("evil", "g5", user="ann"), init=INIT) as intruder:
        assert (await intruder.error())["kind"] == "ClientNotFound"
    async with sync_client(running.url("ann1", "g5", user="ann", cookie=cookie), init=AGAIN, token=token()) as ann:
        await ann.hear("pokeEnd")
    async with sync_client(running.url("evil", "g5", user="ann"), init=INIT) as intruder:
        assert await refusal(intruder) == UNAUTHORIZED


async def test_a_group_whose_record_was_lost_is_its_users_again_when_she_comes(running: Running) -> None:
    async with sync_client(running.url("ann1", "g15", user="ann"), init=INIT, token=token()) as ann:
        cookie = await synced(ann)
    running.restart(running.forget_records)
    async with sync_client(running.url("ann1", "g15", user="ann", cookie=cookie), init=AGAIN, token=token()) as ann:
        assert (await ann.error())["kind"] == "ClientNotFound"
    async with sync_client(running.url("evil", "g15", user="ann"), init=INIT) as squatter:
        await synced(squatter)
        async with sync_client(running.url("ann1", "g15", user="ann"), init=INIT, token=token()) as ann:
            await synced(ann)
            assert (await squatter.error())["kind"] == "Unauthorized"
            running.source.commit(insert(15, "fifteen"))
            await ann.hear("pokePart", where=lambda body: "fifteen" in str(body))
        assert "fifteen" not in rows(squatter)


@pytest.mark.parametrize("group", ["g6", "g7"])
async def test_another_clients_id_does_not_disconnect_that_client(running: Running, group: str) -> None:
    async with sync_client(running.url("ann1", "g6", user="ann"), init=INIT, token=token()) as ann:
        await synced(ann)
        async with sync_client(running.url("ann1", group, user="bob"), init=INIT) as other:
            await other.hear("connected")
            await other.hear("pokeEnd" if group != "g6" else "error")
            assert await is_served(ann)


async def test_a_client_that_claims_another_user_does_not_block_that_user(running: Running) -> None:
    async with sync_client(running.url("evil", "g8", user="bob")) as squatter:
        await squatter.hear("connected")
        async with sync_client(running.url("ann1", "g8", user="ann"), init=INIT, token=token()) as ann:
            await synced(ann)


async def test_a_connection_ends_when_its_token_does(running: Running) -> None:
    until = time.time() + 3
    async with sync_client(running.url("ann1", "g9", user="ann"), init=INIT, token=token(exp=until)) as ann:
        await synced(ann)
        assert (await ann.error())["kind"] == "AuthInvalidated"
    assert time.time() >= until


async def test_a_renewed_token_outlives_the_one_before(running: Running) -> None:
    until = time.time() + 3
    async with sync_client(running.url("ann1", "g10", user="ann"), init=INIT, token=token(iat=1, exp=until)) as ann:
        await synced(ann)
        await ann.say("updateAuth", {"auth": token(iat=2, exp=until + 600)})
        async with sync_client(running.url("b", "g11", user="ann"), init=INIT, token=token(exp=until + 1)) as later:
            assert (await later.error())["kind"] == "AuthInvalidated"
        assert await is_served(ann)


@pytest.mark.parametrize(
    "exp", [float("nan"), float("inf"), 10**400, True, "9999999999"], ids=lambda exp: str(exp)[:10]
)
async def test_a_time_that_is_none_is_no_token(running: Running, exp: Any) -> None:
    async with sync_client(running.url("c", "g12", user="ann"), init=INIT, token=token(exp=exp)) as client:
        assert await refusal(client) == ("AuthInvalidated", 3000)


async def test_a_token_with_critical_headers_is_refused(running: Running) -> None:
    critical = hs256(SECRET, header={"crit": ["exp"]}, sub="ann")
    async with sync_client(running.url("c", "g13", user="ann"), init=INIT, token=critical) as client:
        assert await refusal(client) == ("AuthInvalidated", 3000)


async def test_an_unknown_table_says_nothing_of_the_others(running: Running) -> None:
    asked = {"desiredQueriesPatch": [{"op": "put", "hash": "x", "ast": {"table": "ghost"}}], "clientSchema": SCHEMA}
    ghost = {"tables": {"ghost": {"columns": {"id": {"type": "number"}}, "primaryKey": ["id"]}}}
    column = {"tables": {"item": {"columns": {"ghost": {"type": "number"}}, "primaryKey": ["ghost"]}}}
    order = {"table": "item", "orderBy": [["ghost", "asc"]]}
    ordered = {"desiredQueriesPatch": [{"op": "put", "hash": "x", "ast": order}], "clientSchema": SCHEMA}
    for init in (asked, ordered, {**AGAIN, "clientSchema": ghost}, {**AGAIN, "clientSchema": column}):
        async with sync_client(running.url("c", f"g14-{id(init)}"), init=init) as client:
            message = (await client.error())["message"]
        assert "ghost" in message
        assert not any(name in message for name in ("zero", "permissions", '"id"', "'id'", '"name"', "'name'"))
