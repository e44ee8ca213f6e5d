"""What one client, or many together, may take of the cache; and that the others do not notice when one tries."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
from websockets.exceptions import InvalidMessage

from protocol.sync.handshake import encode_subprotocol
from reference_cache.sync_server.rates import MutationLimit
from tests.reference_cache.sync_server.conftest import Serve, Served
from tests.support.fakes.app_stub import AppStub, app_stub
from tests.support.fakes.sync_client import SECONDS, SyncClient, sync_client, sync_url

INIT: dict[str, Any] = {"desiredQueriesPatch": []}
MEGABYTE = 1024 * 1024


@pytest.fixture
async def app() -> AsyncIterator[AppStub]:
    async with app_stub() as stub:
        yield stub


@asynccontextmanager
async def synced(served: Served, client_id: str = "c1", group: str = "g1", **more: Any) -> AsyncIterator[SyncClient]:
    async with sync_client(sync_url(served.port, client_id, group), init=INIT, **more) as client:
        await client.hear("pokeEnd")
        yield client


async def push(client: SyncClient, group: str, number: int, size: int) -> None:
    mutation = {"type": "custom", "id": number, "clientID": "c1", "name": "m", "args": ["x" * size], "timestamp": 1}
    body = {"clientGroupID": group, "mutations": [mutation], "pushVersion": 1, "timestamp": 1, "requestID": "r"}
    await client.say("push", body)


async def ping(client: SyncClient) -> None:
    await client.say("ping", {})
    await client.hear("pong")


async def test_pushes_that_wait_for_the_application_are_bounded_and_further_ones_refused(
    serve: Serve, app: AppStub
) -> None:
    served = await serve(mutate_urls=(app.url,))
    app.gate.clear()
    async with synced(served, "healthy", "g0") as healthy, synced(served) as client:
        sending = asyncio.create_task(_push_for_ever(client))
        error = await client.error()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert error["kind"] == "ServerOverloaded"
        assert error["minBackoffMs"] >= 5_000
        await ping(healthy)
        await push(healthy, "g0", 1, 100)
        await app.wait_for_requests(2)
    assert served.services.budget.held <= 33 * MEGABYTE


async def _push_for_ever(client: SyncClient) -> None:
    number = 0
    while True:
        number += 1
        await push(client, "g1", number, 4 * MEGABYTE)


async def test_what_was_taken_before_an_overload_reaches_the_application_and_the_bytes_are_free_again(
    serve: Serve, app: AppStub
) -> None:
    served = await serve(mutate_urls=(app.url,), intake_group_bytes=300_000)
    app.gate.clear()
    async with synced(served) as client:
        # The first push is under way at the application; one in the socket's queue may be refused with the rest.
        await push(client, "g1", 1, 60_000)
        await app.wait_for_requests(1)
        for number in range(2, 10):
            await push(client, "g1", number, 60_000)
        assert (await client.error())["kind"] == "ServerOverloaded"
    worker = served.services.pusher._groups["g1"].worker  # type: ignore[union-attr]
    assert worker is not None
    app.gate.set()
    await asyncio.wait_for(worker, SECONDS)
    arrived = [each["id"] for request in app.requests for each in request.body["mutations"]]
    assert arrived == list(range(1, len(arrived) + 1))
    assert 1 <= len(arrived) <= 4
    async with synced(served) as client:
        await push(client, "g1", len(arrived) + 1, 60_000)
        await app.wait_for_requests(len(app.requests) + 1)
    assert served.services.budget.held == 0


async def test_messages_that_wait_for_their_turn_are_bounded_by_bytes(serve: Serve) -> None:
    served = await serve(intake_group_bytes=1_000_000)
    async with synced(served) as client:
        served.syncer.gate.clear()
        for _ in range(20):
            await client.say("deleteClients", {"clientIDs": ["x" * 100_000]})
        assert (await client.error())["kind"] == "ServerOverloaded"
        served.syncer.gate.set()
    await served.syncer.wait_for("close", "c1", None)
    assert served.services.budget.held == 0


async def test_messages_whose_end_does_not_arrive_are_bounded_together(serve: Serve) -> None:
    served = await serve(intake_bytes=4 * MEGABYTE)
    loop = asyncio.get_running_loop()
    sockets = []
    async with synced(served, "healthy", "g0") as healthy:
        for number in range(6):
            raw = await upgraded(served, f"c{number}")
            sockets.append(raw)
            # A frame of 2 MB of which the last byte is kept back.
            await loop.sock_sendall(raw, b"\x81\xff" + struct.pack("!Q", 2 * MEGABYTE) + bytes(4))
            await loop.sock_sendall(raw, bytes(2 * MEGABYTE - 1))
        # There is room for one of them in addition to the reserve, whichever it is.
        told = [asyncio.create_task(_is_told(raw)) for raw in sockets]
        first_told = asyncio.as_completed(told, timeout=SECONDS)
        assert [await next(first_told) for _ in range(5)] == ["ServerOverloaded"] * 5
        await ping(healthy)
        assert sum(each.done() for each in told) == 5
        for each in told:
            each.cancel()
        await asyncio.gather(*told, return_exceptions=True)
    for raw in sockets:
        raw.close()


async def test_without_file_descriptors_the_log_stays_short_and_clients_that_are_there_are_served(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    loop = asyncio.get_running_loop()
    async with synced(served, "healthy", "g0") as healthy:
        comer = socket.socket()
        comer.setblocking(False)
        with no_descriptors():
            await loop.sock_connect(comer, ("127.0.0.1", served.port))
            ended = loop.time() + 2.5  # asyncio tries again after a second
            while loop.time() < ended:
                await ping(healthy)
        told = [record for record in caplog.records if "accept" in record.getMessage()]
        assert [record.getMessage() for record in told] == ["connections cannot be accepted"]
        await loop.sock_sendall(comer, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(SECONDS):
            assert b"200 OK" in await loop.sock_recv(comer, 1000)
        comer.close()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process cannot open anything."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], 1024), limits[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_one_address_has_a_limit_of_its_own(serve: Serve) -> None:
    served = await serve(max_connections_per_address=2)
    async with synced(served, "c1", "g1") as one, synced(served, "c2", "g2"):
        with pytest.raises((ConnectionError, InvalidMessage)):
            async with sync_client(sync_url(served.port, "c3", "g3")):
                raise AssertionError("connected")
        await ping(one)
    async with synced(served, "c3", "g3") as client:
        await ping(client)


async def test_sockets_that_never_say_what_they_want_are_limited_too(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reference_cache.sync_server.accept.WAITING_HANDSHAKES", 2)
    served = await serve(max_connections=1)
    loop = asyncio.get_running_loop()
    silent = []
    async with synced(served) as client:
        for _ in range(6):
            comer = socket.socket()
            comer.setblocking(False)
            await loop.sock_connect(comer, ("127.0.0.1", served.port))
            silent.append(comer)
        for comer in silent[2:]:
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(loop.sock_recv(comer, 1), SECONDS) == b""
        await ping(client)
    for comer in silent:
        comer.close()


async def test_a_client_that_sends_too_fast_is_read_more_slowly_and_others_are_not(serve: Serve) -> None:
    served = await serve(client_messages_per_second=20)
    loop = asyncio.get_running_loop()
    async with synced(served, "healthy", "g0") as healthy, synced(served) as client:
        began = loop.time()
        for _ in range(230):  # a burst of 200, and 1.5 seconds' worth
            await client.say("ping", {})
        await ping(healthy)
        for _ in range(230):
            await client.hear("pong")
        assert loop.time() - began > 1.3
    assert served.services.metrics.throttled._value.get() > 0


async def test_mutations_above_the_limit_are_refused_without_closing_and_later_ones_do_not_overtake_them(
    serve: Serve, app: AppStub
) -> None:
    served = await serve(mutate_urls=(app.url,))
    served.services.mutation_limit = limit = MutationLimit(3, 3600.0)
    async with synced(served) as client:
        for number in range(1, 7):
            await push(client, "g1", number, 10)
        error = await client.hear("error")
        assert (error["kind"], error["origin"]) == ("MutationRateLimited", "zeroCache")
        limit.most = 100
        await push(client, "g1", 7, 10)
        for number in range(4, 8):
            await push(client, "g1", number, 10)
        await ping(client)
        async with asyncio.timeout(SECONDS):
            while (arrived := _ids(app))[-1:] != [7]:
                await app.wait_for_requests(len(app.requests) + 1)
        assert arrived == list(range(1, 8))
        assert [frame[0] for frame in client.frames].count("error") == 1


def _ids(app: AppStub) -> list[int]:
    return [each["id"] for request in app.requests for each in request.body["mutations"]]


async def upgraded(served: Served, client_id: str) -> socket.socket:
    """A client's socket in the raw."""
    loop = asyncio.get_running_loop()
    raw = socket.socket()
    raw.setblocking(False)
    await loop.sock_connect(raw, ("127.0.0.1", served.port))
    target = sync_url(served.port, client_id, client_id).removeprefix(f"ws://127.0.0.1:{served.port}")
    lines = (
        f"GET {target} HTTP/1.1",
        f"Host: 127.0.0.1:{served.port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"Sec-WebSocket-Protocol: {encode_subprotocol(None, None)}",
        "",
        "",
    )
    await loop.sock_sendall(raw, "\r\n".join(lines).encode())
    received = b""
    while b'"connected"' not in received:
        received += await loop.sock_recv(raw, 65536)
    return raw


async def _is_told(raw: socket.socket) -> str:
    """The kind of the error that a raw socket receives before it is closed."""
    received = b""
    while b"}]" not in received.partition(b'["error"')[2]:
        more = await asyncio.get_running_loop().sock_recv(raw, 65536)
        if not more:
            return "closed"
        received += more
    text = received[received.index(b'["error"') : received.index(b"}]") + 2]
    kind: str = json.loads(text)[1]["kind"]
    return kind
