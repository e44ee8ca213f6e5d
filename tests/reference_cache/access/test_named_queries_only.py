"""A cache that refuses ad hoc queries runs named ones: on a running cache, over raw sockets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference_cache.access.conftest import AGAIN, INIT, ITEMS, SCHEMA, Running, rows, synced
from tests.support.fakes.sync_client import sync_client

pytestmark = pytest.mark.timeout(300)
WITH_APPLICATION = True
NAMED: dict[str, Any] = {"op": "put", "hash": "h", "name": "one", "args": []}


async def test_ad_hoc_queries_are_refused_once_the_switch_is_on(running: Running) -> None:
    both = {"desiredQueriesPatch": [ITEMS, NAMED], "clientSchema": SCHEMA}
    async with sync_client(running.url("a", "g1"), init=both) as client:
        cookie = await synced(client)
        assert rows(client) == ["one", "two"]
    running.restart(lambda: running.cache.set("CHANGESOURCE_CACHE_REFUSE_AD_HOC_QUERIES", "true"))
    async with sync_client(running.url("a", "g1", cookie=cookie), init=AGAIN) as client:
        part = await client.hear("pokePart", where=lambda body: "gotQueriesPatch" in body)
        assert part["gotQueriesPatch"] == [{"op": "del", "hash": "items"}]
        assert [op["id"] for op in part["rowsPatch"]] == [{"id": 2}]
        await client.say("changeDesiredQueries", {"desiredQueriesPatch": [{**ITEMS, "hash": "again"}]})
        assert (await client.error())["kind"] == "InvalidMessage"
    async with sync_client(running.url("b", "g2"), init=INIT) as client:
        assert (await client.error())["kind"] == "InvalidMessage"
    async with sync_client(running.url("c", "g3"), init={**INIT, "desiredQueriesPatch": [NAMED]}) as client:
        await synced(client)
        assert rows(client) == ["one"]
