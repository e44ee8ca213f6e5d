"""The two endpoints over HTTP: shapes, credentials, and answers to what no cache would send."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from pydantic import BaseModel

from reference_cache.app_server import (
    ApplicationError,
    DeclarationError,
    Forbidden,
    Mutators,
    NamedQueries,
    Unauthenticated,
    zero_routes,
)
from reference_cache.app_server.http import Authenticate
from reference_cache.zql.query.builder import Queries, QueryBuilder
from tests.reference_cache.app_server.remembering_store import RememberingStore
from tests.support.apps.schema import TRACKER

WHERE = "?schema=zero_0&appID=zero"
ANN = {"Authorization": "Bearer ann"}


@dataclass
class User:
    name: str | None


class Put(BaseModel):
    key: str
    text: str = ""


def user_of(request: web.Request) -> User:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if token == "expired":
        raise Unauthenticated("the token has expired")
    if token == "banned" or request.cookies.get("banned"):
        raise Forbidden("not here")
    return User(token or None)


queries, mutators = NamedQueries(TRACKER), Mutators()


@queries.define("mine")
def mine(ctx: User) -> QueryBuilder:
    return Queries(TRACKER).table("issues").where("owner", str(ctx.name))


@mutators.define("put")
def put(tx: dict[str, Any], args: Put, ctx: User) -> None:
    if ctx.name is None:
        raise ApplicationError("log in first")
    tx[args.key] = ctx.name


@pytest.fixture
def store() -> RememberingStore:
    return RememberingStore()


@pytest.fixture
async def client(store: RememberingStore) -> AsyncIterator[TestClient[Any, Any]]:
    app = web.Application(client_max_size=1000)
    app.add_routes(zero_routes(queries, mutators, store, authenticate=user_of, user_id=lambda user: user.name))
    async with TestClient(TestServer(app)) as made:
        yield made


def push(*mutations: dict[str, Any]) -> dict[str, Any]:
    return {"clientGroupID": "g", "mutations": list(mutations), "pushVersion": 1, "timestamp": 1, "requestID": "r"}


def mutation(number: int = 1, **args: Any) -> dict[str, Any]:
    return {"type": "custom", "id": number, "clientID": "c", "name": "put", "args": [args], "timestamp": 1}


async def posted(client: TestClient[Any, Any], path: str, body: Any, **options: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client.post(path, data=data, **options) as answer:
        return answer.status, await answer.json()


async def test_queries_are_answered_for_the_user_of_the_request(client: TestClient[Any, Any]) -> None:
    request = ["transform", [{"id": "h", "name": "mine", "args": []}]]
    status, answer = await posted(client, f"/query{WHERE}", request, headers=ANN)
    assert status == 200
    assert (answer["kind"], answer["userID"]) == ("QueryResponse", "ann")
    assert answer["queries"][0]["ast"]["where"]["right"] == {"type": "literal", "value": "ann"}


async def test_an_empty_request_validates_credentials(client: TestClient[Any, Any]) -> None:
    assert await posted(client, f"/query{WHERE}", ["transform", []]) == (
        200,
        {"kind": "QueryResponse", "queries": [], "userID": None},
    )


async def test_mutations_are_executed_for_the_user_of_the_request(
    client: TestClient[Any, Any], store: RememberingStore
) -> None:
    status, answer = await posted(client, f"/mutate{WHERE}", push(mutation(key="a")), headers=ANN)
    result = {"id": {"clientID": "c", "id": 1}, "result": {}}
    assert (status, answer) == (200, {"kind": "MutateResponse", "mutations": [result], "userID": "ann"})
    assert store.rows == {"a": "ann"}


@pytest.mark.parametrize("path", ["/query", "/mutate"])
@pytest.mark.parametrize(("token", "status"), [("expired", 401), ("banned", 403)])
async def test_credentials_that_are_not_accepted_get_the_status_a_cache_looks_for(
    client: TestClient[Any, Any], store: RememberingStore, path: str, token: str, status: int
) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    found, answer = await posted(client, f"{path}{WHERE}", push(mutation(key="a")), headers=headers)
    assert found == status
    assert answer["error"] in ("the token has expired", "not here")
    assert store.begun == 0


async def test_cookies_can_carry_credentials(client: TestClient[Any, Any]) -> None:
    assert (await posted(client, f"/query{WHERE}", ["transform", []], cookies={"banned": "1"}))[0] == 403


@pytest.mark.parametrize("body", [b"", b"{", b"[NaN]", b"\xff", b"7", b'["transform"]'])
async def test_an_invalid_query_request_is_refused(client: TestClient[Any, Any], body: bytes) -> None:
    status, answer = await posted(client, f"/query{WHERE}", body)
    assert (status, answer["kind"], answer["reason"], answer["origin"]) == (200, "TransformFailed", "parse", "server")
    assert answer["message"].startswith("Failed to parse query request: ")
    assert answer["queryIDs"] == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"clientGroupID": "g", "mutations": [{}], "pushVersion": 1}'])
async def test_an_invalid_push_is_refused(client: TestClient[Any, Any], body: bytes) -> None:
    status, answer = await posted(client, f"/mutate{WHERE}", body)
    assert (status, answer["kind"], answer["reason"]) == (200, "PushFailed", "parse")
    assert answer["message"].startswith("Failed to parse push body: ")


async def test_a_push_without_its_schema_is_refused_with_its_mutations(
    client: TestClient[Any, Any], store: RememberingStore
) -> None:
    _, answer = await posted(client, "/mutate?appID=zero", push(mutation(key="a")))
    assert (answer["reason"], answer["mutationIDs"]) == ("parse", [{"clientID": "c", "id": 1}])
    assert store.begun == 0


async def test_a_push_may_be_larger_than_the_applications_other_requests(
    client: TestClient[Any, Any], store: RememberingStore
) -> None:
    body = push(mutation(key="a", text="x" * 3_000_000))
    _, answer = await posted(client, f"/mutate{WHERE}", body, headers=ANN)
    assert answer["mutations"][0]["result"] == {}
    assert store.rows == {"a": "ann"}


async def test_a_body_that_a_middleware_has_read_is_still_there(store: RememberingStore) -> None:
    @web.middleware
    async def look(request: web.Request, handler: Any) -> Any:
        assert await request.json() == ["transform", []]
        return await handler(request)

    app = web.Application(middlewares=[look])
    app.add_routes(zero_routes(queries, mutators, store, query_path="/zero/q", mutate_path="/zero/m"))
    async with TestClient(TestServer(app)) as client:
        assert await posted(client, "/zero/q", ["transform", []]) == (200, {"kind": "QueryResponse", "queries": []})


async def test_credentials_may_be_looked_up_asynchronously(store: RememberingStore) -> None:
    async def look_up(request: web.Request) -> User:
        return User("late")

    authenticate: Authenticate[User] = look_up
    app = web.Application()
    app.add_routes(zero_routes(queries, mutators, store, authenticate=authenticate, user_id=lambda user: user.name))
    async with TestClient(TestServer(app)) as client:
        await posted(client, f"/mutate{WHERE}", push(mutation(key="a")))
    assert store.rows == {"a": "late"}


def test_authentication_without_naming_the_user_is_a_mistake(store: RememberingStore) -> None:
    with pytest.raises(DeclarationError, match="user_id"):
        zero_routes(queries, mutators, store, authenticate=user_of)


async def test_with_a_key_only_the_cache_is_answered(store: RememberingStore) -> None:
    app = web.Application()
    app.add_routes(zero_routes(queries, mutators, store, api_key="the cache's"))
    async with TestClient(TestServer(app)) as client:
        for headers, status in (({}, 403), ({"X-Api-Key": "guessed"}, 403), ({"X-Api-Key": "the cache's"}, 200)):
            for path, body in (("/query", ["transform", []]), ("/mutate", push())):
                assert (await posted(client, f"{path}{WHERE}", body, headers=headers))[0] == status
