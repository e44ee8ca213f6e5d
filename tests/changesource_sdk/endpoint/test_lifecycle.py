"""Starting and stopping, the pages beside the stream, status messages, TLS, compression, pruning."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from changesource_sdk.adapter import Insert
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.access.auth import tls_context
from changesource_sdk.endpoint.server import Endpoint
from changesource_sdk.errors import ConfigurationError, EndpointError
from changesource_sdk.system_tables import Permissions
from protocol.messages import AckRequested, Status
from tests.changesource_sdk.endpoint.conftest import Running, Serve
from tests.changesource_sdk.endpoint.written_state import WrittenState


async def get(running: Running, target: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def test_ready_once_a_snapshot_can_be_served(state: WrittenState, serve: Serve) -> None:
    running = await serve()
    assert await get(running, "/healthz") == (200, "ok\n")
    assert (await get(running, "/readyz"))[0] == 503
    state.snapshot()
    async with asyncio.timeout(60):
        while (await get(running, "/readyz"))[0] != 200:
            pass


async def test_status_tells_every_stage_and_stream(state: WrittenState, serve: Serve) -> None:
    watermark = state.snapshot()
    running = await serve()
    cache = running.cache()
    cache.acknowledges = False
    await cache.initial_sync()
    async with cache.stream():
        assert isinstance(await cache.receive(), Status), "caught up"
        newest = state.insert("1")
        await cache.transactions(1)
        await running.endpoint.flush_acks()
        status, body = await get(running, "/statusz")
    document = json.loads(body)
    assert status == 200
    assert document["log"]["head"] == newest
    assert document["log"]["snapshot"] == watermark
    (stream,) = document["streams"]
    assert (stream["phase"], stream["sent"], stream["acknowledged"]) == ("live", newest, cache.replica_version)
    assert (stream["behind"], stream["unacknowledged"], stream["verdict"]) == (0, 1, "ok")
    (subscriber,) = document["subscribers"]
    assert (subscriber["acknowledged"], subscriber["behind"]) == (cache.replica_version, 1)


async def metrics_with(running: Running, line: str) -> str:
    """The metrics, once a line is among them: what arrived may not be counted yet."""
    async with asyncio.timeout(60):
        while True:
            _, body = await get(running, "/metrics")
            if line in body.splitlines():
                return body


async def test_metrics_count_what_was_sent(state: WrittenState, serve: Serve) -> None:
    state.snapshot([{"id": "0", "title": "a"}])
    running = await serve()
    cache = running.cache()
    await cache.initial_sync()
    async with cache.stream():
        assert isinstance(await cache.receive(), Status), "caught up"
        state.commit(*(Insert("issue", {"id": str(n), "title": "b"}) for n in range(8)))
        await cache.transactions(1)
        body = await metrics_with(running, "changesource_sent_transactions_total 2.0")
    assert 'changesource_consumers{state="live"} 1.0' in body
    assert "changesource_sent_frames_total 11.0" in body
    assert "changesource_tail_transactions_total 1.0" in body
    assert "changesource_send_lag_seconds_count 1.0" in body


async def test_each_transaction_is_read_once_for_all_consumers(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve()
    caches = [running.cache(app_id=f"app{number}") for number in range(10)]
    await asyncio.gather(*(cache.initial_sync() for cache in caches))

    async def follow(index: int) -> None:
        async with caches[index].stream():
            await caches[index].receive()
            ready.release()
            await caches[index].transactions(20)

    ready = asyncio.Semaphore(0)
    followers = [asyncio.create_task(follow(index)) for index in range(10)]
    for _ in followers:
        await ready.acquire()
    for number in range(20):
        state.insert(str(number))
    await asyncio.gather(*followers)
    assert all(len(cache.rows("issue")) == 20 for cache in caches)
    assert running.metric("changesource_tail_transactions_total") == 20


async def test_guarded_pages_ask_for_the_key(state: WrittenState, serve: Serve) -> None:
    running = await serve(api_key="k")
    assert (await get(running, "/healthz"))[0] == 200
    assert (await get(running, "/statusz"))[0] == (await get(running, "/metrics"))[0] == 401
    assert (await get(running, "/statusz?apiKey=k"))[0] == 200


async def test_idle_streams_are_told_where_the_log_stands(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve(status_interval=0.05)
    shipped, sketch = running.cache(), running.cache(dialect="sketch")
    await shipped.initial_sync()
    async with shipped.stream(), sketch.stream():
        for _ in range(3):
            message = await shipped.receive()
            assert isinstance(message, Status)
            assert message.watermark == shipped.replica_version
        await sketch.transactions(1)
        asked = await sketch.receive()
        assert isinstance(asked, AckRequested)
        assert asked.latest_upstream_watermark == sketch.watermark


async def test_stopping_ends_streams_at_a_boundary_with_going_away(state: WrittenState) -> None:
    state.snapshot()
    endpoint = Endpoint(ServeConfig(listen="127.0.0.1:0", state=state.directory), Permissions())
    running = Running(endpoint, await endpoint.start())
    cache = running.cache()
    await cache.initial_sync()
    async with cache.stream():
        state.commit(*(Insert("issue", {"id": str(n), "title": "t" * 200}) for n in range(5000)))
        await cache.receive()
        stopping = asyncio.create_task(endpoint.stop())
        with pytest.raises(ConnectionClosed) as caught:
            await cache.until(lambda: False)
    await stopping
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001
    assert len(cache.rows("issue")) in (0, 5000)


async def test_a_taken_port_is_told_as_such(state: WrittenState, serve: Serve) -> None:
    running = await serve()
    config = ServeConfig(listen=f"127.0.0.1:{running.port}", state=state.directory)
    with pytest.raises(EndpointError) as caught:
        await Endpoint(config, Permissions()).start()
    assert caught.value.code == "port-in-use"
    assert "--listen" in caught.value.fix


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(["openssl", "req", *kind, *name, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


async def test_streams_over_tls(state: WrittenState, serve: Serve, certificate: tuple[Path, Path]) -> None:
    state.snapshot()
    cert, key = certificate
    running = await serve(tls_cert=cert, tls_key=key)
    context = ssl.create_default_context(cafile=str(cert))
    url = running.url.replace("ws:", "wss:") + "?appID=zero&shardNum=0"
    async with connect(url, ssl=context, compression=None, proxy=None) as connection:
        assert "begin" in str(await connection.recv())


def test_tls_files_that_do_not_fit_are_named(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, _ = certificate
    with pytest.raises(ConfigurationError, match="no such file"):
        tls_context(cert, tmp_path / "none.pem")
    with pytest.raises(ConfigurationError, match="cannot use"):
        tls_context(cert, cert)


async def test_compression_is_declined_unless_asked_for(state: WrittenState, serve: Serve) -> None:
    state.snapshot([{"id": "1", "title": "x" * 1000}])
    for compression, extensions in ((False, 0), (True, 1)):
        running = await serve(compression=compression)
        url = running.url + "?appID=zero&shardNum=0"
        async with connect(url, compression="deflate", proxy=None) as connection:
            assert len(connection.protocol.extensions) == extensions
            messages: list[Any] = []
            while not messages or messages[-1][0] != "commit":
                messages.append(json.loads(await connection.recv()))
            assert messages[0][0] == "begin"
