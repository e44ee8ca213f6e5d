"""Who gets in: web pages, keys that change, client certificates, and addresses that take too much."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from tests.changesource_sdk.endpoint.conftest import Events, Running, Serve
from tests.changesource_sdk.endpoint.written_state import WrittenState
from tests.support.certificates import Authority

STREAM = "/changes/v0/stream?appID=zero&shardNum=0"
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version": "13",
}


async def status_of(running: Running, target: str, **headers: str) -> int:
    """The status that a raw request gets; 0 if the connection is closed without one."""
    sent = {"Host": f"127.0.0.1:{running.port}"} | (UPGRADE if target.startswith("/changes") else {}) | headers
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    try:
        writer.write("\r\n".join(lines).encode())
        first = await reader.readline()
    except ConnectionError:
        return 0
    finally:
        writer.close()
    return int(first.split()[1]) if first else 0


async def closed(client: socket.socket) -> bool:
    """Whether the endpoint closes a connection before it says anything."""
    try:
        return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionError:
        return True


async def test_a_web_page_reads_nothing_unless_its_origin_is_allowed(state: WrittenState, serve: Serve) -> None:
    state.snapshot([{"id": "1", "title": "private"}])
    running = await serve()
    targets = (STREAM, "/statusz", "/metrics", "/readyz", "/healthz")
    for target in targets:
        assert await status_of(running, target) in (101, 200)
        assert await status_of(running, target, Origin="https://evil.example") == 403
    assert running.metric("changesource_rejections_total", reason="origin") == len(targets)
    allowing = await serve(allowed_origins=("https://tools.example",))
    assert await status_of(allowing, STREAM, Origin="https://tools.example") == 101
    assert await status_of(allowing, STREAM, Origin="https://evil.example") == 403


async def test_pages_are_not_served_under_a_name_that_was_pointed_here(state: WrittenState, serve: Serve) -> None:
    running = await serve()
    for page in ("/statusz", "/metrics"):
        assert await status_of(running, page, Host=f"evil.example:{running.port}") == 403
        assert await status_of(running, page, Host=f"localhost:{running.port}") == 200
    assert await status_of(running, "/healthz", Host="evil.example") == 200, "for the probes of a proxy"
    assert await status_of(await serve(allowed_hosts=("sync.example",)), "/statusz", Host="sync.example") == 200
    assert await status_of(await serve(api_key="k"), "/statusz?apiKey=k", Host="any.example") == 200


async def test_keys_are_rotated_while_streams_are_open(
    state: WrittenState, serve: Serve, events: Events, tmp_path: Path
) -> None:
    state.snapshot()
    file = tmp_path / "keys"
    file.write_text("old:secret-number-one\n")
    running = await serve(api_key_file=file)
    url = f"ws://127.0.0.1:{running.port}{STREAM}&apiKey="
    assert await status_of(running, STREAM) == 401
    async with connect(url + "secret-number-one", proxy=None) as stream:
        await events.seen("consumer connected", key="old")
        file.write_text("old:secret-number-one\nnew:secret-number-two\n")
        await events.seen("API keys read again", keys="new,old")
        assert await status_of(running, STREAM + "&apiKey=secret-number-two") == 101
        file.write_text("new:secret-number-two\n")
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                await stream.recv()
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1008, "API key withdrawn")
    assert await status_of(running, STREAM + "&apiKey=secret-number-one") == 401
    assert running.metric("changesource_key_uses_total", key="old") == 1
    assert not any("secret-number" in f"{record.getMessage()}{record.__dict__}" for record in events.records)


async def test_a_key_file_that_goes_wrong_is_said_and_the_keys_stay(
    state: WrittenState, serve: Serve, events: Events, tmp_path: Path
) -> None:
    state.snapshot()
    file = tmp_path / "keys"
    file.write_text("a:secret-number-one\n")
    running = await serve(api_key_file=file)
    file.write_text("secret-number-two\n")
    await events.seen("reading API keys failed, trying again")
    assert await status_of(running, STREAM + "&apiKey=secret-number-one") == 101


async def test_a_client_certificate_is_needed_where_an_authority_is_given(
    state: WrittenState, serve: Serve, events: Events, tmp_path: Path
) -> None:
    state.snapshot()
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "another")
    files = {name: tmp_path / f"{name}.pem" for name in ("server", "client", "stranger")}
    for name, authority in (("server", ours), ("client", ours), ("stranger", theirs)):
        files[name].write_text(authority.server_pem())
    running = await serve(tls_cert=files["server"], tls_key=files["server"], tls_client_ca=ours.ca)
    url = f"wss://127.0.0.1:{running.port}"

    def trusting(certificate: Path | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(ours.ca))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    async with connect(url + STREAM, ssl=trusting(files["client"]), proxy=None) as stream:
        assert "begin" in str(await stream.recv())
    await events.seen("consumer connected", certificate="localhost")
    for refused, error in ((None, InvalidStatus), (files["stranger"], (OSError, InvalidMessage))):
        with pytest.raises(error):
            async with connect(url + STREAM, ssl=trusting(refused), proxy=None):
                pass
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting(None))
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"200", "a probe has no certificate"
    writer.close()


async def test_listening_beyond_loopback_without_a_key_is_warned_of(
    state: WrittenState, serve: Serve, events: Events
) -> None:
    await serve(listen="127.0.0.1:0")
    await serve(listen="0.0.0.0:0", api_key="k")
    warned = "anyone who can reach this address can read everything that is served"
    assert not any(record.getMessage() == warned for record in events.records)
    await serve(listen="0.0.0.0:0")
    await events.seen(warned)


async def test_a_name_with_several_addresses_is_served_on_all_of_them(state: WrittenState, serve: Serve) -> None:
    running = await serve(listen="localhost:0")
    assert await status_of(running, "/healthz") == 200


async def test_one_address_has_so_many_connections_and_no_more(
    state: WrittenState, serve: Serve, events: Events
) -> None:
    state.snapshot()
    running = await serve(connections_per_address=3)
    url = f"ws://127.0.0.1:{running.port}{STREAM}"
    async with connect(url, proxy=None), connect(url, proxy=None), connect(url, proxy=None) as third:
        assert await status_of(running, "/healthz") == 0
        await events.seen("connection refused", why="connections", peer="127.0.0.1")
        await third.close()
        async with asyncio.timeout(60):
            while await status_of(running, "/healthz") != 200:
                pass
    assert running.metric("changesource_rejections_total", reason="connections") >= 1


async def test_one_address_connects_so_often_and_no_oftener(state: WrittenState, serve: Serve) -> None:
    running = await serve(connection_rate_per_address=0.5)
    assert [await status_of(running, "/healthz") for _ in range(3)] == [200, 0, 0]
    assert running.metric("changesource_rejections_total", reason="rate") == 2


async def test_out_of_file_descriptors_it_says_so_once_and_serves_when_there_are_some(
    state: WrittenState, serve: Serve, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    state.snapshot()
    running = await serve()
    # Made first, so that only the endpoint is short of descriptors.
    clients = [socket.socket() for _ in range(100)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        async with asyncio.timeout(60):
            for client in clients:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", running.port))
            assert {await closed(client) for client in clients} == {True}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
        for client in clients:
            client.close()
    assert running.metric("changesource_rejections_total", reason="descriptors") == len(clients)
    said = [r for r in events.records if r.getMessage() == "connection refused"]
    assert len(said) == 1
    assert not [record for record in caplog.records if record.name == "asyncio"]
    async with asyncio.timeout(60):
        while await status_of(running, "/healthz") != 200:
            pass
