"""One connection: messages in order, errors of the official kinds, slow readers bounded."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol.sync.errors import ErrorKind, SyncError, unauthorized
from protocol.sync.handshake import encode_subprotocol
from reference_cache.sync_server import outbox
from reference_cache.sync_server.connection import SETTLE_SECONDS
from tests.reference_cache.sync_server.conftest import Serve, Served
from tests.support.fakes.sync_client import SyncClient, sync_client, sync_url

INIT: dict[str, Any] = {"desiredQueriesPatch": []}
PUT = {"desiredQueriesPatch": [{"op": "put", "hash": "h1", "name": "all", "args": []}]}
CUSTOM = {"type": "custom", "id": 1, "clientID": "c1", "name": "m", "args": [], "timestamp": 1}
CRUD = {
    "type": "crud",
    "id": 1,
    "clientID": "c1",
    "name": "_zero_crud",
    "args": [{"ops": [{"op": "insert", "tableName": "t", "primaryKey": ["id"], "value": {"id": 1}}]}],
    "timestamp": 1,
}


def push(mutation: object, group: str = "g1") -> dict[str, Any]:
    return {"clientGroupID": group, "mutations": [mutation], "pushVersion": 1, "timestamp": 1, "requestID": "r"}


@asynccontextmanager
async def synced(served: Served, client_id: str = "c1", group: str = "g1", **more: Any) -> AsyncIterator[SyncClient]:
    async with sync_client(sync_url(served.port, client_id, group, **more), init=INIT) as client:
        await client.hear("pokeEnd")
        yield client


async def bystander_is_fine(served: Served, bystander: SyncClient) -> None:
    served.syncer.send("bystander", b'["pong",{}]')
    await bystander.hear("pong")


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "{}",
        "[]",
        '["ping"]',
        '["unknown",{}]',
        "[1,{}]",
        '["ping",{"extra":1}]',
        '["updateAuth",{"auth":1}]',
        '["updateAuth",{"auth":null}]',
        '["changeDesiredQueries",{"desiredQueriesPatch":[{"op":"take","hash":"h"}]}]',
        '["changeDesiredQueries",{"desiredQueriesPatch":[{"op":"put","hash":"h","ast":{"limit":1}}]}]',
        '["changeDesiredQueries",{"desiredQueriesPatch":[],"desired_queries_patch":[]}]',
        '["push",{"clientGroupID":"g1","mutations":[{"type":"other"}],"pushVersion":1,"timestamp":1,"requestID":"r"}]',
        '["inspect",{"op":"everything","id":"1"}]',
        "[" * 5000,
    ],
)
async def test_a_malformed_message_is_invalid_and_harms_nobody_else(serve: Serve, text: str) -> None:
    served = await serve()
    async with synced(served, "bystander", "g0") as bystander, synced(served) as client:
        await client.socket.send(text)
        error = await client.error()
        assert (error["kind"], error["origin"]) == ("InvalidMessage", "zeroCache")
        await bystander_is_fine(served, bystander)
    assert client.socket.close_code == 1005


async def test_a_frame_above_the_limit_is_closed_with_1009(serve: Serve) -> None:
    served = await serve(max_payload_bytes=1000)
    async with synced(served) as client:
        await client.say("updateAuth", {"auth": "x" * 2000})
        assert (await client.closing())[0] == 1009


async def test_messages_before_the_first_are_dropped(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1")) as client:
        await client.say("changeDesiredQueries", PUT)
        await client.say("deleteClients", {"clientIDs": ["c9"]})
        await client.say("initConnection", INIT)
        await client.hear("pokeEnd")
    assert [call[0] for call in served.syncer.calls if call[0] != "close"] == ["connect"]


async def test_the_inspector_gets_the_reason_for_a_bad_question_and_an_id_for_a_bug(serve: Serve) -> None:
    served = await serve(development=True)
    async with synced(served) as client:
        for fault, told in ((ValueError("no such query"), "no such query"), (KeyError("secret"), "error id")):
            served.syncer.fault = fault
            await client.say("inspect", {"op": "metrics", "id": "1"})
            answer = await client.hear("inspect")
            assert (answer["op"], told in answer["value"]) == ("error", True)
            assert "secret" not in answer["value"]


async def test_a_second_first_message_ends_the_connection(serve: Serve) -> None:
    served = await serve()
    async with synced(served) as client:
        await client.say("initConnection", INIT)
        assert (await client.error())["kind"] == "Internal"


async def test_messages_are_handled_in_order_and_ping_at_once(serve: Serve) -> None:
    served = await serve()
    async with synced(served) as client:
        served.syncer.gate.clear()
        await client.say("changeDesiredQueries", PUT)
        await client.say("deleteClients", {"clientIDs": ["c9"]})
        await client.say("ping", {})
        await client.hear("pong")
        assert [call[0] for call in served.syncer.calls] == ["connect"]
        served.syncer.gate.set()
        await served.syncer.wait_for("delete", "c1", ["c9"])
    assert [call[0] for call in served.syncer.calls[:3]] == ["connect", "change", "delete"]


async def test_a_client_that_leaves_while_it_is_admitted_is_closed_afterwards(serve: Serve) -> None:
    served = await serve()
    served.syncer.gate.clear()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        await client.hear("connected")
    served.syncer.gate.set()
    await served.syncer.wait_for("close", "c1", None)


async def test_an_error_of_the_syncer_is_sent_with_its_kind(serve: Serve) -> None:
    served = await serve()
    served.syncer.fault = SyncError(ErrorKind.CLIENT_NOT_FOUND, "Client not found")
    async with sync_client(sync_url(served.port, "c1", "g1", cookie="07"), init=INIT) as client:
        assert await client.error() == {
            "kind": "ClientNotFound",
            "message": "Client not found",
            "origin": "zeroCache",
        }


async def test_a_refused_user_is_closed_with_3000(serve: Serve) -> None:
    served = await serve()
    served.syncer.fault = unauthorized("pinned")
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        assert (await client.error())["kind"] == "Unauthorized"
    assert client.socket.close_code == 3000


async def test_a_bug_is_internal_and_ends_only_its_own_connection(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    async with synced(served, "bystander", "g0") as bystander, synced(served) as client:
        served.syncer.fault = ZeroDivisionError("oops")
        await client.say("changeDesiredQueries", PUT)
        error = await client.error()
        assert error["kind"] == "Internal"
        assert "oops" not in str(error)
        (record,) = [each for each in caplog.records if each.exc_info]
        assert error["message"].endswith(f"error id {record.__dict__['fields']['error_id']}")
        assert "oops" in caplog.text
        await bystander_is_fine(served, bystander)


async def test_an_error_outside_of_a_call_reaches_its_client(serve: Serve) -> None:
    served = await serve()
    async with synced(served) as client:
        served.syncer.fail("c1", SyncError(ErrorKind.SCHEMA_VERSION_NOT_SUPPORTED, "no such table"))
        assert (await client.error())["kind"] == "SchemaVersionNotSupported"
    await served.syncer.wait_for("close", "c1", None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (push(CUSTOM, "g2"), "does not match"),
        (push(CRUD), "legacy CRUD mutations is disabled"),
        (push(CUSTOM), "ZERO_MUTATE_URL must be set"),
    ],
)
async def test_a_push_that_cannot_be_is_invalid(serve: Serve, body: dict[str, Any], message: str) -> None:
    served = await serve()
    async with synced(served) as client:
        await client.say("push", body)
        error = await client.error()
        assert error["kind"] == "InvalidPush"
        assert message in error["message"]


async def test_an_empty_push_and_a_pull_are_nothing(serve: Serve) -> None:
    served = await serve()
    async with synced(served) as client:
        await client.say("push", {**push(CUSTOM), "mutations": []})
        await client.say("pull", {"clientGroupID": "g1", "cookie": None, "requestID": "r"})
        await client.say("closeConnection", [])
        await client.say("ackMutationResponses", {"clientID": "c1", "id": 1})
        await client.say("ping", {})
        await client.hear("pong")
        assert [frame[0] for frame in client.frames] == ["connected", "pokeStart", "pokeEnd", "pong"]


async def test_the_inspector_wants_the_admin_password(serve: Serve) -> None:
    served = await serve(admin_password="hush")
    async with synced(served) as client:
        await client.say("inspect", {"op": "version", "id": "1"})
        assert await client.hear("inspect") == {"op": "authenticated", "id": "1", "value": False}
        await client.say("inspect", {"op": "authenticate", "id": "2", "value": "wrong"})
        assert (await client.hear("inspect"))["value"] is False
        await client.say("inspect", {"op": "authenticate", "id": "3", "value": "hush"})
        assert (await client.hear("inspect"))["value"] is True
        await client.say("inspect", {"op": "version", "id": "4"})
        assert await client.hear("inspect") == {"op": "version", "id": "4", "value": {"version": "1"}}


async def test_frames_arrive_whole_and_in_order_with_and_without_compression(serve: Serve) -> None:
    for compression in (False, True):
        served = await serve(compression=compression)
        url = sync_url(served.port, "c1", "g1")
        async with sync_client(url, init=INIT, compression="deflate" if compression else None) as client:
            await client.hear("pokeEnd")
            assert bool(client.socket.protocol.extensions) is compression
            frames = [json.dumps(["pokePart", {"n": n, "text": "x" * (n * 997 % 70_000)}]).encode() for n in range(200)]
            served.syncer.send("c1", *frames[:100])
            for frame in frames[100:]:
                served.syncer.send("c1", frame)
            for n in range(200):
                assert (await client.hear("pokePart"))["n"] == n


async def silent_reader(served: Served) -> socket.socket:
    """A socket that is connected and initialised, and never reads again."""
    path = sync_url(served.port, "slow", "g9").partition(str(served.port))[2]
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, ("127.0.0.1", served.port))
    letter = encode_subprotocol(["initConnection", INIT])
    lines = [f"GET {path} HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"]
    lines += [f"Sec-WebSocket-Protocol: {letter}", "", ""]
    await loop.sock_sendall(made, "\r\n".join(lines).encode())
    await served.syncer.wait_for("connect", "slow", [])
    return made


async def test_a_client_that_never_reads_is_dropped_and_the_others_are_served(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "STUCK_SECONDS", 0.3)
    served = await serve()
    slow = await silent_reader(served)
    frame = json.dumps(["pokePart", {"text": "x" * 1_000_000}]).encode()
    async with synced(served, "bystander", "g0") as bystander:
        for _ in range(30):
            served.syncer.send("slow", frame)
        await bystander_is_fine(served, bystander)
        await served.syncer.wait_for("close", "slow", None)
        await bystander_is_fine(served, bystander)
    assert served.services.metrics.dropped._value.get() == 1
    slow.close()


async def test_a_client_that_does_not_read_its_first_large_poke_is_dropped_and_nothing_is_kept_for_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "STUCK_SECONDS", 0.3)
    served = await serve()
    slow = await silent_reader(served)
    served.syncer.send("slow", json.dumps(["pokePart", {"text": "x" * 30_000_000}]).encode())
    assert served.services.backlog.bytes > 25_000_000
    await served.syncer.wait_for("close", "slow", None)
    assert served.services.backlog.bytes == 0
    slow.close()


async def test_when_too_much_waits_for_all_the_one_that_does_not_read_is_dropped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "RESTING_SECONDS", 0.05)
    served = await serve(send_buffers_bytes=20_000_000)
    slow = await silent_reader(served)
    served.syncer.send("slow", json.dumps(["pokePart", {"text": "x" * 15_000_000}]).encode())
    async with synced(served, "bystander", "g0") as bystander:
        await bystander_is_fine(served, bystander)
        assert "slow" in {each.request.client_id for each in served.server.open_clients}
        served.syncer.send("slow", json.dumps(["pokePart", {"text": "x" * 15_000_000}]).encode())
        await served.syncer.wait_for("close", "slow", None)
        await bystander_is_fine(served, bystander)
    assert served.services.metrics.dropped._value.get() == 1
    assert served.services.backlog.bytes == 0
    slow.close()


async def test_a_large_poke_arrives_whole_at_a_client_that_reads(serve: Serve) -> None:
    served = await serve()
    async with synced(served) as client:
        text = "".join(map(str, range(300_000)))
        served.syncer.send("c1", json.dumps(["pokePart", {"text": text}]).encode())
        assert await client.hear("pokePart") == {"text": text}


async def test_a_client_hopelessly_behind_is_dropped_at_once(serve: Serve) -> None:
    served = await serve(send_buffer_bytes=64 * 1024)
    slow = await silent_reader(served)
    for _ in range(200):
        served.syncer.send("slow", b"[" + b"1," * 50_000 + b"1]")
    await served.syncer.wait_for("close", "slow", None)
    slow.close()


async def test_stopping_tells_clients_to_go(serve: Serve) -> None:
    served = await serve()
    async with synced(served) as client:
        stopping = asyncio.create_task(served.server.stop())
        assert (await client.closing())[0] == 1001
        await stopping
    await served.syncer.wait_for("close", "c1", None)


async def test_an_error_does_not_overtake_the_greeting(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = await serve()
    monkeypatch.setattr("reference_cache.sync_server.connection.SETTLE_SECONDS", SETTLE_SECONDS)
    served.syncer.fault = SyncError(ErrorKind.CLIENT_NOT_FOUND, "Client not found")
    began = asyncio.get_running_loop().time()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        await client.hear("connected")
        await client.say("ping", {})
        await client.error()
        assert asyncio.get_running_loop().time() - began > SETTLE_SECONDS * 0.9
    assert [frame[0] for frame in client.frames] == ["connected", "error"]
