"""Claims of seeds over HTTP: what is answered before a cache starts, and what the stream does with a claimed copy."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.asyncio.client import connect

from changesource_sdk.changelog.coordination.seeds import SeedRecord, ready
from changesource_sdk.endpoint.fetch_claim import claim_at
from changesource_sdk.endpoint.fetch_status import fetch
from changesource_sdk.endpoint.seed_claims import PATH
from changesource_sdk.errors import EndpointError, StateError
from tests.changesource_sdk.endpoint.conftest import Running, Serve
from tests.changesource_sdk.endpoint.written_state import WrittenState

pytestmark = pytest.mark.parametrize("state", ["sqlite", "postgres"], indirect=True)


def head(state: WrittenState) -> str:
    return state.writer.state().head


async def claimed(running: Running, watermark: str, *, only_check: bool = False, url: str = "") -> str:
    return await asyncio.to_thread(claim_at, url or running.url, "zero", 0, watermark, only_check=only_check)


async def first_message(running: Running, version: str) -> list[object]:
    """What a replica of this version is sent first: the tag, and what it is about."""
    url = f"{running.url}?appID=zero&shardNum=0&lastWatermark={version}&replicaVersion={version}"
    async with connect(url) as connection:
        message = json.loads(await asyncio.wait_for(connection.recv(), 30))
    return [message[0], message[2]["commitWatermark"] if message[0] == "begin" else message[1]["tag"]]


async def test_a_copy_of_a_seed_continues_where_the_seed_ends(state: WrittenState, serve: Serve) -> None:
    state.snapshot([{"id": "1", "title": "one"}])
    seeded = head(state)
    state.insert("2", "after the seed")
    running = await serve()
    assert await claimed(running, seeded, only_check=True) == ""
    first, second = await claimed(running, seeded), await claimed(running, seeded)
    assert seeded < first < second < head(state)
    for version in (first, second):
        assert await first_message(running, version) == ["begin", head(state)]


async def test_a_seed_that_the_log_does_not_continue_is_refused_with_the_fix(state: WrittenState, serve: Serve) -> None:
    state.snapshot([{"id": "1", "title": "one"}])
    seeded = head(state)
    state.snapshot([{"id": "1", "title": "another generation"}])
    running = await serve()
    for only_check in (True, False):
        with pytest.raises(StateError, match="seed-not-covered") as refused:
            await claimed(running, seeded, only_check=only_check)
        assert "changesource seed" in refused.value.fix
    # A copy that was claimed before is reset by the stream.
    assert await first_message(running, f"{seeded}.01") == ["control", "reset-required"]


async def test_a_claim_needs_the_key_of_the_stream(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve(api_key="secret-key")
    with pytest.raises(EndpointError, match="401"):
        await claimed(running, head(state))
    assert await claimed(running, head(state), url=f"{running.url}?apiKey=secret-key")


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ("", "appID"),
        ("appID=UPPER&shardNum=0&watermark=01", "appID"),
        ("appID=zero&shardNum=x&watermark=01", "shardNum"),
        ("appID=zero&shardNum=0", "watermark"),
        ("appID=zero&shardNum=0&watermark=01&watermark=02", "watermark"),
        ("appID=zero&shardNum=0&watermark=not,one", "watermark"),
    ],
)
async def test_a_malformed_claim_names_what_is_wrong(
    state: WrittenState, serve: Serve, parameters: str, named: str
) -> None:
    state.snapshot()
    running = await serve()
    status, body = await asyncio.to_thread(fetch, running.url, PATH, parameters)
    assert status == 400
    assert named in body.decode()


async def test_status_and_metrics_show_age_and_size_of_the_newest_seed(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve()
    old = SeedRecord("00.01", "zero", 0, "1.9.0", "00", "00", 1000.0, "s3://bucket/seeds")
    made = SeedRecord(f"{head(state)}.01", "zero", 0, "1.9.0", head(state), head(state), 1000.0, "s3://bucket/seeds")
    running.endpoint._log_store.seeds.put(old)
    running.endpoint._log_store.seeds.put(ready(made, 5, 4096))
    status, body = await asyncio.to_thread(fetch, running.url, "/statusz")
    assert status == 200
    lost, shown = json.loads(body)["seeds"]
    assert lost["problem"]
    assert (shown["rows"], shown["bytes"], shown["problem"], shown["state"]) == (5, 4096, None, "ready")
    assert running.metric("changesource_seed_bytes", app="zero", shard="0") == 4096
    assert running.metric("changesource_seed_age_seconds", app="zero", shard="0") > 1000
