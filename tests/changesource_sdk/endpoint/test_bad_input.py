"""Consumers that break the rules get a clear answer; the others are unharmed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from changesource_sdk.adapter import Insert
from tests.changesource_sdk.endpoint.conftest import Events, Running, Serve
from tests.changesource_sdk.endpoint.written_state import WrittenState

DEAD_AFTER = 3.0
DEAD = "no sign of life for 3 s"


@asynccontextmanager
async def live_connection(running: Running, watermark: str) -> AsyncIterator[ClientConnection]:
    query = f"?appID=zero&shardNum=0&lastWatermark={watermark}&replicaVersion={watermark}"
    async with connect(running.url + query, compression=None, proxy=None) as connection:
        yield connection


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        (b"\x00\x01", 1003, "binary"),
        ("not json", 1002, "JSON"),
        ("[]", 1002, "unknown message"),
        ('["hello", {}]', 1002, "hello"),
        ('["status", {"tag": "commit"}]', 1002, "status"),
        ('["status", {}, {"watermark": 5}]', 1002, "watermark"),
        ('["status", {}, {"watermark": "zzzzzzzz"}]', 1002, "never had"),
        ('["status", {}, {"watermark": "' + "1" * 100_000 + '"}]', 1009, ""),
    ],
)
async def test_what_is_no_ack_ends_the_connection_with_a_reason(
    state: WrittenState, serve: Serve, message: str | bytes, code: int, says: str
) -> None:
    watermark = state.snapshot()
    running = await serve()
    bystander = running.cache()
    await bystander.initial_sync()
    async with bystander.stream(), live_connection(running, watermark) as connection:
        await connection.send(message)
        with pytest.raises(ConnectionClosed) as caught:
            async for _ in connection:
                pass
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == code
        assert says in caught.value.rcvd.reason
        state.insert("1")
        await bystander.until(lambda: "1" in bystander.rows("issue"))


async def test_acks_of_both_forms_are_kept_per_consumer(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve()
    shipped, sketch = running.cache(), running.cache(app_id="other", dialect="sketch")
    await shipped.initial_sync()
    async with shipped.stream(), sketch.stream():
        await sketch.transactions(1)
        versions = {"zero": shipped.replica_version, "other": sketch.watermark}
        newest = state.insert("1")
        await shipped.until(lambda: shipped.watermark == newest)
        await sketch.until(lambda: sketch.watermark == newest)
        for cache in (shipped, sketch):
            # A pong comes after everything sent before the ping was taken in.
            await (await cache.connection.ping())
        await running.endpoint.flush_acks()
        document = await running.endpoint.status()
    kept = {(s["app"], s["replicaVersion"], s["acknowledged"], s["behind"]) for s in document["subscribers"]}  # type: ignore[attr-defined]
    assert kept == {(app, version, newest, 0) for app, version in versions.items()}


async def test_a_wrong_key_is_refused_and_a_right_one_admitted(state: WrittenState, serve: Serve) -> None:
    watermark = state.snapshot()
    running = await serve(api_key="s3cret")
    with pytest.raises(InvalidStatus) as caught:
        async with live_connection(running, watermark):
            pass
    assert caught.value.response.status_code == 401
    running.url = running.url.replace("://", "://user:s3cret@")
    async with live_connection(running, watermark) as connection:
        assert "status" in str(await connection.recv())


async def test_a_consumer_that_never_reads_is_dropped_and_holds_nobody_back(
    state: WrittenState, serve: Serve, events: Events
) -> None:
    watermark = state.snapshot()
    running = await serve(dead_after=DEAD_AFTER, ping_interval=0.2)
    reader = running.cache()
    await reader.initial_sync()
    deaf = socket.create_connection(("127.0.0.1", running.port))
    deaf.sendall(_upgrade_request(watermark))
    async with reader.stream():
        for number in range(20):
            state.commit(*(Insert("issue", {"id": f"{number}-{n}", "title": "x" * 10_000}) for n in range(100)))
            await reader.transactions(1)
        async with asyncio.timeout(60):
            await events.seen("consumer left", why=DEAD)
    deaf.close()


async def test_an_idle_consumer_that_answers_pings_is_kept(state: WrittenState, serve: Serve, events: Events) -> None:
    state.snapshot()
    running = await serve(dead_after=DEAD_AFTER, ping_interval=0.2, status_interval=60.0)
    cache = running.cache()
    await cache.initial_sync()
    async with cache.stream():
        await cache.receive()
        # Nothing is sent and nothing read for longer than a dead consumer would be kept.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(DEAD_AFTER + 0.5):
                await events.seen("consumer left", why=DEAD)
        state.insert("1")
        await cache.transactions(1)
    assert "1" in cache.rows("issue")


async def test_a_storm_of_refused_requests_leaves_others_unharmed(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve()
    cache = running.cache()
    await cache.initial_sync()

    async def knock() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /changes/v9/stream HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    async with cache.stream():
        for _ in range(10):
            answers = await asyncio.gather(*(knock() for _ in range(30)))
            assert all(b"404" in answer and b"/changes/v0/stream" in answer for answer in answers)
            state.insert(f"{len(cache.commits)}")
            await cache.transactions(1)
    refused = running.endpoint.metrics.registry.get_sample_value("changesource_rejections_total", {"reason": "path"})
    assert refused == 300


def _upgrade_request(watermark: str) -> bytes:
    target = f"/changes/v0/stream?appID=deaf&shardNum=0&lastWatermark={watermark}&replicaVersion={watermark}"
    return (
        f"GET {target} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
