"""Mutations to the application: order, merging, one request at a time, and who hears of failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from protocol.sync.errors import SyncError
from protocol.sync.messages import Push
from reference_cache.app_client.cleanups import MAX_REQUESTS
from reference_cache.app_client.post import AppPost
from reference_cache.app_client.pusher import Pusher
from reference_cache.byte_budget import ByteBudget
from reference_cache.config import AppEndpoint
from reference_cache.credentials import Address, Credentials
from reference_cache.view_syncer.api import Outgoing
from tests.support.fakes.app_stub import AppStub

GROUP_BYTES, TOTAL_BYTES = 100_000, 400_000


class Heard:
    """A socket that keeps the errors it is sent."""

    is_open = True

    def __init__(self) -> None:
        self.errors: asyncio.Queue[SyncError] = asyncio.Queue()

    def send(self, outgoing: Outgoing) -> None:
        raise AssertionError("a pusher sends nothing but errors")

    def fail(self, error: SyncError) -> None:
        self.errors.put_nowait(error)

    async def error(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return (await self.errors.get()).body


@pytest.fixture
async def pusher(app: AppStub, session: aiohttp.ClientSession) -> AsyncIterator[Pusher]:
    app.answer = done
    endpoint = AppEndpoint(urls=(app.url,))
    made = Pusher(
        AppPost(session, endpoint, "ZERO_MUTATE_URL", "zero_0", "zero", backoff=0.001),
        ByteBudget(GROUP_BYTES, TOTAL_BYTES),
    )
    yield made
    await made.stop()


def push(client: str, *ids: int, padding: object = None) -> Push:
    mutations = [
        {"type": "custom", "id": n, "clientID": client, "name": "m", "args": [{"n": padding}], "timestamp": n}
        for n in ids
    ]
    body = {"clientGroupID": "g", "mutations": mutations, "pushVersion": 1, "timestamp": 5, "requestID": f"r{ids}"}
    return Push.model_validate(body)


def done(body: Any) -> Any:
    results = [{"id": {"clientID": each["clientID"], "id": each["id"]}, "result": {}} for each in body["mutations"]]
    return {"kind": "MutateResponse", "mutations": results}


def user(app: AppStub, token: str = "t") -> Credentials:
    return Credentials("ann", token, mutate=Address(app.url))


def sent(app: AppStub) -> list[list[tuple[str, int]]]:
    return [[(each["clientID"], each["id"]) for each in request.body["mutations"]] for request in app.requests]


async def test_a_push_is_forwarded_as_it_came(app: AppStub, pusher: Pusher) -> None:
    pusher.push("g", "s1", user(app), push("c1", 1))
    await app.wait_for_requests(1)
    assert app.requests[0].body == push("c1", 1).model_dump(exclude_none=True)
    assert app.requests[0].body["mutations"][0]["args"] == [{"n": None}]
    assert app.requests[0].query == {"schema": "zero_0", "appID": "zero"}


async def test_what_waits_is_merged_by_socket_in_order_one_request_at_a_time(app: AppStub, pusher: Pusher) -> None:
    app.gate.clear()
    pusher.push("g", "s1", user(app), push("c1", 1))
    await app.wait_for_requests(1)
    for sender, client, number in (("s1", "c1", 2), ("s2", "c2", 1), ("s1", "c1", 3), ("s2", "c2", 2)):
        pusher.push("g", sender, user(app), push(client, number))
    app.gate.set()
    await app.wait_for_requests(3)
    assert sent(app) == [[("c1", 1)], [("c1", 2), ("c1", 3)], [("c2", 1), ("c2", 2)]]
    assert app.most_under_way == 1


async def test_groups_do_not_wait_for_each_other(app: AppStub, pusher: Pusher) -> None:
    app.gate.clear()
    pusher.push("g", "s1", user(app), push("c1", 1))
    pusher.push("g2", "s2", user(app), push("c2", 1))
    await app.wait_for_requests(2)


async def test_new_credentials_are_a_request_of_their_own(app: AppStub, pusher: Pusher) -> None:
    app.gate.clear()
    pusher.push("g", "s1", user(app), push("c1", 1))
    await app.wait_for_requests(1)
    pusher.push("g", "s1", user(app), push("c1", 2))
    pusher.push("g", "s1", user(app, "new"), push("c1", 3))
    app.gate.set()
    await app.wait_for_requests(3)
    assert [request.headers["Authorization"] for request in app.requests] == ["Bearer t", "Bearer t", "Bearer new"]


async def test_each_client_hears_of_its_own_failed_mutations(app: AppStub, pusher: Pusher) -> None:
    one, two, bystander = Heard(), Heard(), Heard()
    for client, heard in (("c1", one), ("c2", two), ("c3", bystander)):
        pusher.register("g", client, heard)
    app.answer = lambda body: web.Response(status=401, text="who?")
    both = push("c1", 1).model_copy(update={"mutations": [*push("c1", 1).mutations, *push("c2", 4).mutations]})
    pusher.push("g", "s1", user(app), both)
    assert await one.error() == {
        "kind": "PushFailed",
        "message": "Fetch from API server returned non-OK status 401",
        "origin": "zeroCache",
        "reason": "http",
        "mutationIDs": [{"id": 1, "clientID": "c1"}],
        "status": 401,
        "bodyPreview": "who?",
    }
    assert (await two.error())["mutationIDs"] == [{"id": 4, "clientID": "c2"}]
    assert bystander.errors.empty()


@pytest.mark.parametrize(
    ("answer", "reason", "origin"),
    [
        ("nonsense", "parse", "zeroCache"),
        ({"mutations": [{"id": 1}]}, "parse", "zeroCache"),
        (
            {
                "kind": "PushFailed",
                "origin": "server",
                "reason": "oooMutation",
                "message": "gap",
                "mutationIDs": [{"id": 1, "clientID": "c1"}],
            },
            "oooMutation",
            "server",
        ),
        (
            {"mutations": [{"id": {"id": 1, "clientID": "c1"}, "result": {"error": "oooMutation"}}]},
            "oooMutation",
            "server",
        ),
        (
            {"error": "unsupportedPushVersion", "mutationIDs": [{"id": 1, "clientID": "c1"}]},
            "unsupportedPushVersion",
            "server",
        ),
        (
            {"error": "http", "status": 403, "details": "no", "mutationIDs": [{"id": 1, "clientID": "c1"}]},
            "http",
            "zeroCache",
        ),
        (
            {
                "kind": "MutateResponse",
                "userID": "bob",
                "mutations": [{"id": {"id": 1, "clientID": "c1"}, "result": {}}],
            },
            "http",
            "zeroCache",
        ),
    ],
)
async def test_the_failure_of_a_whole_request_is_sent_to_the_client(
    app: AppStub, pusher: Pusher, answer: object, reason: str, origin: str
) -> None:
    heard = Heard()
    pusher.register("g", "c1", heard)
    app.answer = lambda body: answer
    pusher.push("g", "s1", user(app), push("c1", 1))
    error = await heard.error()
    assert (error["kind"], error["reason"], error["origin"]) == ("PushFailed", reason, origin)
    assert error["mutationIDs"] == [{"id": 1, "clientID": "c1"}]


async def test_a_refused_mutation_is_not_reported_by_the_pusher(app: AppStub, pusher: Pusher) -> None:
    heard = Heard()
    pusher.register("g", "c1", heard)
    refused = {"mutations": [{"id": {"id": 1, "clientID": "c1"}, "result": {"error": "app"}}]}
    app.answer = lambda body: refused if body["mutations"][0]["id"] == 1 else web.Response(status=400)
    pusher.push("g", "s1", user(app), push("c1", 1))
    await app.wait_for_requests(1)
    pusher.push("g", "s1", user(app), push("c1", 2))
    assert (await heard.error())["mutationIDs"] == [{"id": 2, "clientID": "c1"}]


async def test_seen_results_and_deleted_clients_are_cleaned_up(app: AppStub, pusher: Pusher) -> None:
    pusher.cleanups.results_acknowledged("g", user(app), "c1", 2)
    await app.wait_for_requests(1)
    pusher.cleanups.clients_deleted("g", user(app), [])
    pusher.cleanups.clients_deleted("g", user(app), ["c1", "c2"])
    await app.wait_for_requests(2)
    first, second = (request.body["mutations"][0] for request in app.requests)
    assert (first["name"], first["id"], first["type"]) == ("_zero_cleanupResults", 0, "custom")
    assert first["args"] == [{"type": "single", "clientGroupID": "g", "clientID": "c1", "upToMutationID": 2}]
    assert second["args"] == [{"type": "bulk", "clientGroupID": "g", "clientIDs": ["c1", "c2"]}]


async def test_nothing_is_kept_of_a_group_without_clients(app: AppStub, pusher: Pusher) -> None:
    heard = Heard()
    pusher.register("g", "c1", heard)
    pusher.unregister("g", "c1", Heard())
    assert pusher._groups
    pusher.unregister("g", "c1", heard)
    assert not pusher._groups


async def test_pushes_that_wait_are_bounded_by_bytes_and_none_that_was_taken_is_lost(
    app: AppStub, pusher: Pusher
) -> None:
    app.gate.clear()
    taken = 0
    with pytest.raises(SyncError) as refused:
        for number in range(1, 100):
            pusher.push("g", "s1", user(app), push("c1", number, padding="x" * 10_000))
            taken = number
    assert refused.value.kind == "ServerOverloaded"
    assert refused.value.details["minBackoffMs"] > 0
    assert taken == GROUP_BYTES // 11_000
    pusher.push("g2", "s2", user(app), push("c2", 1))
    workers = [group.worker for group in pusher._groups.values() if group.worker is not None]
    app.gate.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*workers)
    assert sorted(each for request in sent(app) for each in request if each[0] == "c1") == [
        ("c1", number) for number in range(1, taken + 1)
    ]
    assert pusher._budget.held == 0
    pusher.push("g", "s1", user(app), push("c1", taken + 1))


async def test_many_groups_together_are_bounded_and_one_that_sends_little_still_gets_through(
    app: AppStub, pusher: Pusher
) -> None:
    app.gate.clear()
    refused = 0
    for group in range(20):
        try:
            pusher.push(f"g{group}", "s", user(app), push("c1", 1, padding="x" * 90_000))
        except SyncError:
            refused += 1
    assert refused == 17
    assert pusher._budget.held <= TOTAL_BYTES
    pusher.push("healthy", "s", user(app), push("c2", 1))
    await app.wait_for_requests(4)


async def test_a_push_above_the_groups_limit_is_taken_when_nothing_else_waits(app: AppStub, pusher: Pusher) -> None:
    app.gate.clear()
    pusher.push("g", "s1", user(app), push("c1", 1, padding="x" * (GROUP_BYTES + 1)))
    with pytest.raises(SyncError):
        pusher.push("g", "s1", user(app), push("c1", 2))
    app.gate.set()
    await app.wait_for_requests(1)


async def test_a_merged_request_is_bounded(app: AppStub, pusher: Pusher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_cache.app_client.pusher.REQUEST_BYTES", 25_000)
    for number in range(1, 6):
        pusher.push("g", "s1", user(app), push("c1", number, padding="x" * 10_000))
    await app.wait_for_requests(3)
    assert sent(app) == [[("c1", 1), ("c1", 2)], [("c1", 3), ("c1", 4)], [("c1", 5)]]


async def test_credentials_that_change_back_do_not_reorder_mutations(app: AppStub, pusher: Pusher) -> None:
    for number, token in enumerate(("a", "b", "a"), 1):
        pusher.push("g", "s1", user(app, token), push("c1", number))
    await app.wait_for_requests(3)
    assert sent(app) == [[("c1", 1)], [("c1", 2)], [("c1", 3)]]


async def test_a_flood_of_acknowledgements_is_merged_and_holds_up_no_mutation(app: AppStub, pusher: Pusher) -> None:
    app.gate.clear()
    for number in range(5_000):
        pusher.cleanups.results_acknowledged("g", user(app), "c1", number)
        pusher.cleanups.results_acknowledged(f"g{number % 50}", user(app), "c1", number)
    pusher.push("other", "s2", user(app), push("c2", 1))
    await app.wait_for_requests(MAX_REQUESTS + 1)
    assert [("c2", 1)] in sent(app)
    assert app.under_way == MAX_REQUESTS + 1
    app.gate.set()
    await app.wait_for_requests(1 + 51 + MAX_REQUESTS)
    newest = {
        request.body["clientGroupID"]: request.body["mutations"][0]["args"][0]["upToMutationID"]
        for request in app.requests
        if request.body["mutations"][0]["name"] == "_zero_cleanupResults"
    }
    assert newest == {"g": 4_999} | {f"g{number}": 4_950 + number for number in range(50)}


async def test_acknowledgements_for_more_clients_than_a_group_can_have_are_dropped(
    app: AppStub, pusher: Pusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reference_cache.app_client.cleanups.MAX_CLIENTS", 3)
    for number in range(100):
        pusher.cleanups.results_acknowledged("g", user(app), f"c{number}", 1)
    await app.wait_for_requests(4)
    pusher.push("g", "s1", user(app), push("c1", 1))
    await app.wait_for_requests(5)
    assert len(app.requests) == 5


async def test_a_pusher_that_has_stopped_takes_nothing(app: AppStub, pusher: Pusher) -> None:
    app.gate.clear()
    pusher.push("g", "s1", user(app), push("c1", 1))
    await app.wait_for_requests(1)
    pusher.push("g", "s1", user(app), push("c1", 2))
    await pusher.stop()
    pusher.push("g", "s1", user(app), push("c1", 3))
    pusher.cleanups.results_acknowledged("g", user(app), "c1", 1)
    assert sent(app) == [[("c1", 1)]]
