"""One POST to the application: its content, what is retried, and how failures are reported."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from reference_cache.app_client.post import AppFailure, AppPost
from reference_cache.config import AppEndpoint
from reference_cache.credentials import Address
from tests.support.fakes.app_stub import AppStub
from tests.support.ports import free_port


def post(session: aiohttp.ClientSession, url: str, **more: object) -> AppPost:
    endpoint = AppEndpoint(urls=(url,), api_key=str(more.pop("api_key", "")) or None)
    return AppPost(session, endpoint, "ZERO_QUERY_URL", "zero_0", "zero", backoff=0.001, **more)  # type: ignore[arg-type]


async def test_a_request_names_schema_and_app_and_carries_the_clients_headers(
    app: AppStub, session: aiohttp.ClientSession
) -> None:
    app.answer = lambda body: {"echo": body}
    url = f"{app.url}/query?tenant=7"
    address = Address(url, (("Cookie", "a=b"), ("Origin", "http://me")))
    assert await post(session, url, api_key="k")(address, "token", [1]) == {"echo": [1]}
    request = app.requests[0]
    assert request.query == {"tenant": "7", "schema": "zero_0", "appID": "zero"}
    sent = {name: request.headers.get(name) for name in ("Authorization", "X-Api-Key", "Cookie", "Origin")}
    assert sent == {"Authorization": "Bearer token", "X-Api-Key": "k", "Cookie": "a=b", "Origin": "http://me"}


async def test_a_server_error_is_tried_four_times(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = lambda body: web.Response(status=503, text="x" * 600)
    with pytest.raises(AppFailure) as failed:
        await post(session, app.url)(Address(app.url), None, [])
    assert len(app.requests) == 4
    assert failed.value.reason == "http"
    assert failed.value.details == {"status": 503, "bodyPreview": "x" * 512 + "..."}


async def test_a_server_that_recovers_is_not_a_failure(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = lambda body: web.Response(status=500) if len(app.requests) < 3 else {"fine": True}
    assert await post(session, app.url)(Address(app.url), None, []) == {"fine": True}


async def test_a_refusal_is_final(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = lambda body: web.Response(status=401, text="who are you")
    with pytest.raises(AppFailure) as failed:
        await post(session, app.url)(Address(app.url), None, [])
    assert len(app.requests) == 1
    assert failed.value.details == {"status": 401, "bodyPreview": "who are you"}


async def test_an_unreachable_application_is_an_internal_error(session: aiohttp.ClientSession) -> None:
    url = f"http://127.0.0.1:{free_port()}/query"
    with pytest.raises(AppFailure) as failed:
        await post(session, url)(Address(url), None, [])
    assert failed.value.reason == "internal"


async def test_an_answer_that_does_not_come_is_a_timeout(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.gate.clear()
    with pytest.raises(AppFailure) as failed:
        await post(session, app.url, timeout=1.0)(Address(app.url), None, [])
    assert failed.value.reason == "timeout"
    assert len(app.requests) == 1


async def test_nonsense_is_a_parse_failure(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = lambda body: web.Response(text="<html>")
    with pytest.raises(AppFailure) as failed:
        await post(session, app.url)(Address(app.url), None, [])
    assert failed.value.reason == "parse"


async def test_a_client_may_only_name_urls_that_are_allowed(app: AppStub, session: aiohttp.ClientSession) -> None:
    send = post(session, f"{app.url}/:any/query")
    await send(Address(f"{app.url}/eu/query", is_clients_choice=True), None, [])
    with pytest.raises(AppFailure, match="ZERO_QUERY_URL"):
        await send(Address("http://169.254.169.254/query", is_clients_choice=True), None, [])
    assert [request.path for request in app.requests] == ["/eu/query"]


@pytest.mark.parametrize(
    "path",
    ["/api/query/../../admin", "/api/query/%2e%2e/%2e%2e/admin", "/api/query/..%2f..%2fadmin", "/api\\..\\admin"],
)
async def test_no_spelling_of_a_path_leads_out_of_what_is_allowed(
    app: AppStub, session: aiohttp.ClientSession, path: str
) -> None:
    send = post(session, f"{app.url}/api/query/*")
    with pytest.raises(AppFailure, match="not allowed"):
        await send(Address(f"{app.url}{path}", is_clients_choice=True), None, [])
    assert app.requests == []


async def test_what_is_requested_is_what_was_matched(app: AppStub, session: aiohttp.ClientSession) -> None:
    send = post(session, f"{app.url}/api/query/*")
    await send(Address(f"{app.url}/api/x/../query/%61%2Cb?q=%2F#part", is_clients_choice=True), None, [])
    assert [request.path for request in app.requests] == ["/api/query/a,b"]
    assert app.requests[0].query == {"q": "/", "schema": "zero_0", "appID": "zero"}


@pytest.mark.parametrize("query", ["schema=evil", "appID=evil", "x=1&%73chema=evil", "APPID=evil", "schema"])
async def test_a_client_cannot_set_the_parameters_that_are_the_caches(
    app: AppStub, session: aiohttp.ClientSession, query: str
) -> None:
    send = post(session, f"{app.url}/*")
    with pytest.raises(AppFailure, match="the cache sets"):
        await send(Address(f"{app.url}/query?{query}", is_clients_choice=True), None, [])
    assert app.requests == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(app: AppStub, session: aiohttp.ClientSession, status: int) -> None:
    app.answer = lambda body: web.Response(status=status, headers={"Location": f"{app.url}/elsewhere"})
    with pytest.raises(AppFailure, match="redirects are not followed") as failed:
        await post(session, app.url, api_key="k")(Address(app.url), "token", [])
    assert failed.value.status == status
    assert [request.path for request in app.requests] == ["/"]


async def test_headers_of_the_cache_are_not_the_clients_to_set(app: AppStub, session: aiohttp.ClientSession) -> None:
    theirs = (("authorization", "Basic x"), ("content-type", "text/plain"), ("host", "evil"), ("x-api-key", "theirs"))
    await post(session, app.url, api_key="ours")(Address(app.url, theirs), "token", [])
    sent = {name.lower(): value for name, value in app.requests[0].headers.items()}
    assert (sent["x-api-key"], sent["authorization"]) == ("ours", "Bearer token")
    assert (sent["content-type"], sent["host"]) == ("application/json", app.url.removeprefix("http://"))
