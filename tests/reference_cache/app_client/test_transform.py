"""Named queries through the application: batches, cached answers, and the errors sent to clients."""

from __future__ import annotations

import threading
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from protocol.sync.app_server import parse_query_answer
from protocol.sync.ast_json import parse
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.app_client.post import AppPost
from reference_cache.app_client.transform import MANY_QUERIES, QueryTransformer
from reference_cache.config import AppEndpoint
from reference_cache.credentials import Address, Credentials
from reference_cache.view_syncer.api import NamedQueryCall, QueryFailure
from tests.support.fakes.app_stub import AppStub

ALL = NamedQueryCall("h1", "all", [])
MINE = NamedQueryCall("h2", "mine", [{"owner": "ann"}])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def transformer(app: AppStub, session: aiohttp.ClientSession, clock: Clock | None = None) -> QueryTransformer:
    endpoint = AppEndpoint(urls=(app.url,))
    post = AppPost(session, endpoint, "ZERO_QUERY_URL", "zero_0", "zero", backoff=0.001)
    return QueryTransformer(post, clock or Clock())


def ann(app: AppStub, token: str | None = "t") -> Credentials:
    return Credentials("ann", token, Address(app.url))


def answered(body: Any) -> Any:
    queries = [{"id": each["id"], "name": each["name"], "ast": {"table": each["name"]}} for each in body[1]]
    return {"kind": "QueryResponse", "queries": queries}


async def test_queries_go_in_one_request_and_come_back_by_hash(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = answered
    found = await transformer(app, session).transform(ann(app), [ALL, MINE])
    assert found == {"h1": parse({"table": "all"}), "h2": parse({"table": "mine"})}
    assert [request.body for request in app.requests] == [
        [
            "transform",
            [{"id": "h1", "name": "all", "args": []}, {"id": "h2", "name": "mine", "args": [{"owner": "ann"}]}],
        ]
    ]


@pytest.mark.parametrize(("queries", "thread"), [(1, "MainThread"), (MANY_QUERIES, "background_0")])
async def test_a_large_answer_is_checked_in_the_background(
    app: AppStub, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, queries: int, thread: str
) -> None:
    threads: list[str] = []

    def noting_its_thread(value: object) -> Any:
        threads.append(threading.current_thread().name)
        return parse_query_answer(value)

    monkeypatch.setattr("reference_cache.app_client.transform.parse_query_answer", noting_its_thread)
    app.answer = answered
    answers = await transformer(app, session).transform(
        ann(app), [NamedQueryCall(f"h{number}", "all", [number]) for number in range(queries)]
    )
    assert len(answers) == queries
    assert threads == [thread]


async def test_the_older_form_of_the_answer_is_read(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = lambda body: ["transformed", answered(body)["queries"]]
    assert await transformer(app, session).transform(ann(app), [ALL]) == {"h1": parse({"table": "all"})}


async def test_an_answer_is_kept_five_seconds_for_the_same_credentials_only(
    app: AppStub, session: aiohttp.ClientSession
) -> None:
    app.answer = answered
    clock = Clock()
    made = transformer(app, session, clock)
    await made.transform(ann(app), [ALL])
    clock.now = 4.9
    await made.transform(ann(app), [ALL])
    assert len(app.requests) == 1
    await made.transform(ann(app, "other"), [ALL])
    assert len(app.requests) == 2
    clock.now = 5.1
    await made.transform(ann(app), [ALL, MINE])
    assert len(app.requests) == 3


async def test_a_refused_query_is_a_failure_of_its_own_and_is_not_kept(
    app: AppStub, session: aiohttp.ClientSession
) -> None:
    refused = {"error": "app", "id": "h1", "name": "all", "message": "no", "details": {"a": None}}
    app.answer = lambda body: {"kind": "QueryResponse", "queries": [refused]}
    made = transformer(app, session)
    assert await made.transform(ann(app), [ALL]) == {"h1": QueryFailure(refused)}
    await made.transform(ann(app), [ALL])
    assert len(app.requests) == 2


async def test_validation_is_a_request_with_no_queries(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = answered
    await transformer(app, session).validate(ann(app))
    assert [request.body for request in app.requests] == [["transform", []]]


async def test_refused_credentials_are_reported_as_unauthorized(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = lambda body: web.Response(status=403, text="no")
    with pytest.raises(SyncError) as refused:
        await transformer(app, session).transform(ann(app), [ALL])
    assert refused.value.body == {
        "kind": "TransformFailed",
        "message": "Fetch from API server returned non-OK status 403",
        "origin": "zeroCache",
        "reason": "http",
        "queryIDs": ["h1"],
        "status": 403,
        "bodyPreview": "no",
    }
    assert refused.value.refuses_credentials


async def test_a_failure_the_application_declares_is_relayed(app: AppStub, session: aiohttp.ClientSession) -> None:
    body = {"kind": "TransformFailed", "origin": "server", "reason": "database", "message": "down", "queryIDs": ["h1"]}
    app.answer = lambda _: body
    with pytest.raises(SyncError) as failed:
        await transformer(app, session).transform(ann(app), [ALL])
    assert failed.value.body == body
    assert not failed.value.refuses_credentials


@pytest.mark.parametrize(
    "nonsense",
    [{}, [], 7, {"kind": "QueryResponse"}, {"kind": "QueryResponse", "queries": [{"id": "h1"}]}, ["transformed", 1]],
)
async def test_nonsense_is_a_parse_failure(app: AppStub, session: aiohttp.ClientSession, nonsense: object) -> None:
    app.answer = lambda body: nonsense
    with pytest.raises(SyncError) as failed:
        await transformer(app, session).transform(ann(app), [ALL])
    assert (failed.value.kind, failed.value.details["reason"]) == (ErrorKind.TRANSFORM_FAILED, "parse")


async def test_another_user_in_the_answer_is_unauthorized(app: AppStub, session: aiohttp.ClientSession) -> None:
    app.answer = lambda body: {**answered(body), "userID": "bob"}
    with pytest.raises(SyncError) as refused:
        await transformer(app, session).validate(ann(app))
    assert refused.value.kind is ErrorKind.UNAUTHORIZED


async def test_without_an_endpoint_named_queries_are_never_answered() -> None:
    made = QueryTransformer(None)
    await made.validate(Credentials())
    assert await made.transform(Credentials(), [ALL]) == {}
