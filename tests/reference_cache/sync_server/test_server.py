"""Admission: which clients are accepted, what refused ones receive, and the HTTP pages on the same port."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from websockets.exceptions import InvalidMessage, InvalidStatus

from protocol.sync.errors import unauthorized
from protocol.sync.handshake import encode_subprotocol
from reference_cache.errors import CacheError
from reference_cache.sync_server import server
from tests.reference_cache.sync_server.conftest import Serve, Served
from tests.support.certificates import Authority
from tests.support.fakes.sync_client import sync_client, sync_url

INIT = {"desiredQueriesPatch": [{"op": "put", "hash": "h1", "name": "all", "args": []}]}


async def page(served: Served, path: str, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{served.port}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_a_client_is_greeted_before_anything_else_and_its_letter_comes_back(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        assert client.socket.subprotocol == encode_subprotocol(["initConnection", INIT])
        await client.hear("pokeEnd")
    tags = [frame[0] for frame in client.frames]
    assert tags == ["connected", "pokeStart", "pokeEnd"]
    assert client.frames[0][1]["wsid"] == "ws-c1"
    assert ("connect", "c1", ["put"]) in served.syncer.calls


async def test_the_first_message_may_follow_the_handshake(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1")) as client:
        await client.hear("connected")
        assert served.syncer.calls == []
        await client.say("initConnection", INIT)
        await client.hear("pokeEnd")


async def test_what_a_client_came_with_is_not_kept_while_it_is_connected(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        await client.hear("pokeEnd")
        await client.say("ping", {})
        await client.hear("pong")
        (connected,) = served.server.open_clients
        assert connected.request.init is None
        assert connected._init_message is None
        assert connected._socket.connect_request is None
        assert connected._socket.request is not None
        assert not connected._socket.request.headers


async def test_a_header_of_more_than_eight_kilobytes_is_read(serve: Serve) -> None:
    served = await serve()
    large = {"desiredQueriesPatch": [{"op": "put", "hash": f"h{n}", "name": "q" * 60, "args": []} for n in range(80)]}
    async with sync_client(sync_url(served.port, "c1", "g1"), init=large) as client:
        assert len(client.socket.subprotocol or "") > 8192
        await client.hear("pokeEnd")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clientID": "-"}, "missing clientID"),
        ({"clientGroupID": "-"}, "missing clientGroupID"),
        ({"ts": "-"}, "missing ts"),
        ({"lmid": "many"}, "parameter lmid"),
    ],
)
async def test_a_handshake_without_what_it_needs_is_closed_with_1002(
    serve: Serve, changes: dict[str, str], reason: str
) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1", version=51, **changes)) as client:
        code, why = await client.closing()
    assert code == 1002
    assert reason in why
    assert client.frames == []


@pytest.mark.parametrize("letter", ["", "%7Bnot-base64", base64.b64encode(b"[1]").decode().rstrip("=")])
async def test_an_unreadable_letter_is_closed_with_1002(serve: Serve, letter: str) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1"), subprotocol=letter) as client:
        assert (await client.closing())[0] == 1002


async def test_an_unknown_path_is_closed_with_1002(serve: Serve) -> None:
    served = await serve()
    url = sync_url(served.port, "c1", "g1").replace("/sync/", "/nope/")
    async with sync_client(url) as client:
        assert (await client.closing())[0] == 1002


@pytest.mark.parametrize("version", [29, 52, 99])
async def test_other_protocol_versions_are_refused_with_the_supported_one(serve: Serve, version: int) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1", version=version), init=INIT) as client:
        error = await client.error()
        assert error["kind"] == "VersionNotSupported"
        assert error["origin"] == "zeroCache"
        assert [frame[0] for frame in client.frames] == ["error"]
    assert client.socket.close_code == 1005


@pytest.mark.parametrize("version", [30, 51])
async def test_the_oldest_and_the_newest_version_are_served(serve: Serve, version: int) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1", version=version), init=INIT) as client:
        await client.hear("pokeEnd")


async def test_one_leading_path_segment_is_accepted(serve: Serve) -> None:
    served = await serve()
    url = sync_url(served.port, "c1", "g1").replace("/sync/", "/base/sync/")
    async with sync_client(url, init=INIT) as client:
        await client.hear("pokeEnd")


async def test_a_token_without_a_user_is_refused_with_3000(serve: Serve) -> None:
    served = await serve(query_urls=("http://127.0.0.1:9/q",), mutate_urls=("http://127.0.0.1:9/m",))
    async with sync_client(sync_url(served.port, "c1", "g1"), token="t") as client:
        assert (await client.error())["kind"] == "Unauthorized"
    assert client.socket.close_code == 3000


async def test_a_socket_replaces_the_one_before_only_once_it_is_admitted(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1", user="ann"), init=INIT) as first:
        await first.hear("pokeEnd")
        served.syncer.fault = unauthorized("pinned")
        async with sync_client(sync_url(served.port, "c1", "g1", user="bob"), init=INIT) as second:
            assert (await second.error())["kind"] == "Unauthorized"
        assert second.socket.close_code == 3000
        async with sync_client(sync_url(served.port, "c1", "g2"), init=INIT) as namesake:
            await namesake.hear("pokeEnd")
            await first.say("ping", {})
            await first.hear("pong")


async def test_a_second_socket_of_a_client_replaces_the_first_without_an_error(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as first:
        await first.hear("pokeEnd")
        _, downstream = served.syncer.clients["c1"]
        assert downstream.is_open
        async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as second:
            await second.hear("pokeEnd")
            assert not downstream.is_open
            assert (await first.closing())[0] == 1005
            assert "error" not in [frame[0] for frame in first.frames]
            await second.say("ping", {})
            await second.hear("pong")


async def test_a_socket_that_is_admitted_late_does_not_displace_a_newer_one(serve: Serve) -> None:
    served = await serve()
    slow = served.syncer.gate
    slow.clear()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as first:
        await first.say("ping", {})
        await first.hear("pong")
        served.syncer.gate = asyncio.Event()
        served.syncer.gate.set()
        async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as second:
            await second.hear("pokeEnd")
            assert (await first.closing())[0] == 1005
            slow.set()
            await served.syncer.wait_for("close", "c1", None)
            await second.say("ping", {})
            await second.hear("pong")


async def test_connections_above_the_limit_are_refused_with_503(serve: Serve) -> None:
    served = await serve(max_connections=1)
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        await client.hear("pokeEnd")
        with pytest.raises(InvalidStatus) as refused:
            async with sync_client(sync_url(served.port, "c2", "g2")):
                raise AssertionError("connected")
    assert refused.value.response.status_code == 503


async def test_a_client_waits_a_little_for_a_cache_that_starts(serve: Serve) -> None:
    served = await serve()
    served.ready.clear()
    asyncio.get_running_loop().call_later(0.1, served.ready.set)
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        await client.hear("pokeEnd")


async def test_a_client_is_turned_away_from_a_cache_that_takes_long(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READY_SECONDS", 0.05)
    served = await serve()
    served.ready.clear()
    with pytest.raises(InvalidStatus) as refused:
        async with sync_client(sync_url(served.port, "c1", "g1")):
            raise AssertionError("connected")
    assert refused.value.response.status_code == 503
    assert (await page(served, "/"))[0] == 503
    assert (await page(served, "/healthz"))[0] == 200


async def test_pages_tell_readiness_metrics_and_status(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT) as client:
        await client.hear("pokeEnd")
        assert (await page(served, "/"))[0] == 200
        assert "changesource_cache_connections 1.0" in (await page(served, "/metrics"))[1]
        assert json.loads((await page(served, "/statusz"))[1])["connections"] == 1
    assert (await page(served, "/nope"))[0] == 404


async def test_metrics_and_status_want_the_admin_password(serve: Serve) -> None:
    served = await serve(admin_password="hush")
    right = base64.b64encode(b"anyone:hush").decode()
    wrong = base64.b64encode(b"anyone:else").decode()
    for path in ("/metrics", "/statusz"):
        assert (await page(served, path))[0] == 401
        assert (await page(served, path, Authorization=f"Basic {wrong}"))[0] == 401
        assert (await page(served, path, Authorization=f"Basic {right}"))[0] == 200


async def test_a_port_in_use_is_an_error_with_a_remedy(serve: Serve) -> None:
    served = await serve()
    with pytest.raises(CacheError) as refused:
        await serve_at(serve, served.port)
    assert refused.value.code == "port-in-use"
    assert "ZERO_PORT" in refused.value.fix


async def serve_at(serve: Serve, port: int) -> None:
    other = await serve()
    other.services.config = replace(other.services.config, port=port)
    await server.SyncServer(other.services, other.ready).start()


ALLOWED = ("https://app.example.com", "http://*.local:3000")


@pytest.mark.parametrize(
    "origin", [None, "https://app.example.com", "HTTPS://APP.example.com:443", "http://a.local:3000"]
)
async def test_pages_of_allowed_origins_and_programs_connect(serve: Serve, origin: str | None) -> None:
    served = await serve(allowed_origins=ALLOWED)
    headers = {} if origin is None else {"Origin": origin}
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT, headers=headers) as client:
        await client.hear("pokeEnd")


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://app.example.com.evil.example",
        "https://app.example.com:8443",
        "http://app.example.com",
        "http://evil.example/.local:3000",
        "http://.local:3000",
        "null",
        "",
    ],
)
async def test_pages_of_other_origins_do_not(serve: Serve, origin: str) -> None:
    served = await serve(allowed_origins=ALLOWED)
    with pytest.raises(InvalidStatus) as refused:
        async with sync_client(sync_url(served.port, "c1", "g1"), headers={"Origin": origin}):
            raise AssertionError("connected")
    assert refused.value.response.status_code == 403


async def test_any_origin_connects_where_none_is_listed(serve: Serve) -> None:
    served = await serve()
    async with sync_client(sync_url(served.port, "c1", "g1"), init=INIT, headers={"Origin": "https://any"}) as client:
        await client.hear("pokeEnd")


@pytest.mark.parametrize("header", [{"X-Forwarded-For": "203.0.113.7"}, {"Host": "rebound.example:4848"}])
async def test_without_a_password_metrics_and_status_are_for_this_machine_only(
    serve: Serve, header: dict[str, str]
) -> None:
    served = await serve()
    for path in ("/metrics", "/statusz"):
        assert (await page(served, path))[0] == 200
        assert (await page(served, path, **header))[0] == 403
    assert (await page(served, "/readyz", **header))[0] == 200


async def test_clients_are_served_over_tls(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = tmp_path / "server.pem"
    pem.write_text(authority.server_pem())
    served = await serve(tls_cert=pem, tls_key=pem)
    trusting = ssl.create_default_context(cafile=authority.ca)
    url = sync_url(served.port, "c1", "g1").replace("ws://", "wss://")
    async with sync_client(url, init=INIT, tls=trusting) as client:
        await client.hear("pokeEnd")
    with pytest.raises((ConnectionError, InvalidMessage)):
        async with sync_client(sync_url(served.port, "c1", "g1")):
            raise AssertionError("connected in plain text")


async def test_tls_files_that_cannot_be_used_are_named(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="bad-tls") as refused:
        await serve(tls_cert=tmp_path / "none.pem", tls_key=tmp_path / "none.pem")
    assert "CHANGESOURCE_CACHE_TLS_CERT" in refused.value.where


async def test_a_cache_that_others_can_reach_says_what_is_missing(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        await serve()
        assert caplog.records == []
        await serve(host="0.0.0.0")
    assert [record.getMessage() for record in caplog.records] == [
        "other machines can connect and there is no admin password",
        "other machines can connect, without encryption",
    ]
