"""What happens to open connections from time to time."""

from __future__ import annotations

import asyncio

from aiohttp import web

from tests.reference_cache.sync_server.conftest import Serve
from tests.support.fakes.app_stub import app_stub
from tests.support.fakes.sync_client import sync_client, sync_url

INIT: dict[str, object] = {"desiredQueriesPatch": []}


def soon(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_a_client_that_was_sent_nothing_gets_a_pong(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        await client.hear("pokeEnd")
        await served.server._upkeep.sweep(soon(0))
        next(iter(served.server.open_clients)).outbox.last_sent -= 7
        await served.server._upkeep.sweep(soon(0))
        await client.hear("pong")
    assert [frame[0] for frame in client.frames].count("pong") == 1


async def test_refused_credentials_end_a_connection_and_a_sick_application_does_not(serve: Serve) -> None:
    async with app_stub() as app:
        app.answer = lambda body: web.Response(status=500)
        served = await serve(query_urls=(app.url,), mutate_urls=(app.url,))
        url = sync_url(served.port, "c1", "g1", user="ann")
        async with sync_client(url, init=INIT, token="t") as client:
            await client.hear("pokeEnd")
            await served.server._upkeep.sweep(soon(299))
            assert app.requests == []
            await served.server._upkeep.sweep(soon(301))
            await app.wait_for_requests(4)
            app.answer = lambda body: web.Response(status=401)
            await served.server._upkeep.sweep(soon(602))
            error = await client.error()
    assert (error["kind"], error["status"]) == ("TransformFailed", 401)
    assert [request.body for request in app.requests] == [["transform", []]] * 5


async def test_named_queries_are_asked_for_again_once_per_group(serve: Serve) -> None:
    served = await serve(revalidate_seconds=0.0, query_urls=("http://127.0.0.1:9/q",))
    async with (
        sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as one,
        sync_client(sync_url(served.port, "c2", "g1"), init=INIT) as two,
    ):
        await one.hear("pokeEnd")
        await two.hear("pokeEnd")
        await served.server._upkeep.sweep(soon(0))
        await served.server._upkeep.sweep(soon(301))
        async with asyncio.timeout(60), served.syncer.changed:
            await served.syncer.changed.wait_for(lambda: any(call[0] == "transform" for call in served.syncer.calls))
        await served.server._upkeep.sweep(soon(302))
        assert [call[0] for call in served.syncer.calls].count("transform") == 1


async def test_new_credentials_reach_the_syncer_and_old_ones_change_nothing(serve: Serve) -> None:
    served = await serve(query_urls=("http://127.0.0.1:9/q",), mutate_urls=("http://127.0.0.1:9/m",))
    async with sync_client(sync_url(served.port, "c1", "g1", user="ann"), init=INIT, token="old") as client:
        await client.hear("pokeEnd")
        await client.say("updateAuth", {"auth": "old"})
        await client.say("updateAuth", {"auth": "new"})
        await served.syncer.wait_for("auth", "c1", "new")
        assert [call[0] for call in served.syncer.calls] == ["connect", "auth"]
        await client.say("updateAuth", {"auth": ""})
        assert (await client.error())["kind"] == "Unauthorized"
