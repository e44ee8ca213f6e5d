"""Pushes: in order, once each, confirmed with what they wrote, and a refusal does not hold up what follows."""

from typing import Any

import pytest
from pydantic import BaseModel

from protocol.sync.app_server import CLEANUP, MutateResponse, PushFailed, parse_mutate_answer
from reference_cache.app_server import ApplicationError, Mutators
from reference_cache.app_server.errors import StoreUnavailable
from reference_cache.app_server.push_processor import ATTEMPTS, PushProcessor
from reference_cache.app_server.requests import parse_push
from reference_cache.app_server.stores.store import ClientKey
from tests.reference_cache.app_server.remembering_store import Passing, RememberingStore

CLIENT = ClientKey("zero_0", "group", "client")


class Put(BaseModel):
    key: str
    value: int


mutators = Mutators()


@mutators.define("put")
def put(tx: dict[str, int], args: Put) -> None:
    tx[args.key] = args.value


@mutators.define("refuse")
async def refuse(tx: dict[str, int], args: Put, ctx: str) -> None:
    tx[args.key] = args.value
    raise ApplicationError(f"not for {ctx}", {"key": args.key})


@mutators.define("crash")
def crash(tx: dict[str, int]) -> None:
    tx["crash"] = 1
    raise RuntimeError("out of luck")


@pytest.fixture
def store() -> RememberingStore:
    return RememberingStore()


def mutation(number: int, name: str, argument: Any = None, client: str = "client") -> dict[str, Any]:
    args = [] if argument is None else [argument]
    return {"type": "custom", "id": number, "clientID": client, "name": name, "args": args, "timestamp": 1}


def put_of(number: int, key: str = "k", client: str = "client") -> dict[str, Any]:
    return mutation(number, "put", {"key": key, "value": number}, client)


async def process(
    store: RememberingStore, *mutations: dict[str, Any], version: int = 1, group: str = "group"
) -> MutateResponse | PushFailed:
    body = {"clientGroupID": group, "mutations": list(mutations), "pushVersion": version}
    answer = await PushProcessor(mutators, store).process(parse_push(body), "zero_0", "ann")
    parsed = parse_mutate_answer(answer)
    assert isinstance(parsed, MutateResponse | PushFailed)
    return parsed


def outcomes(answer: MutateResponse | PushFailed) -> list[tuple[Any, str | None]]:
    assert isinstance(answer, MutateResponse)
    return [(each.id.id, each.result.error) for each in answer.mutations]


def failed(answer: MutateResponse | PushFailed) -> tuple[str, list[Any]]:
    assert isinstance(answer, PushFailed)
    return answer.reason, [each.id for each in answer.mutation_ids]


async def test_mutations_are_confirmed_with_what_they_write(store: RememberingStore) -> None:
    answer = await process(store, put_of(1, "a"), put_of(2, "b"))
    assert outcomes(answer) == [(1, None), (2, None)]
    assert (store.rows, store.last, store.results) == ({"a": 1, "b": 2}, {CLIENT: 2}, {})
    assert store.begun == 2


async def test_a_push_that_comes_twice_is_done_once(store: RememberingStore) -> None:
    await process(store, put_of(1, "a"))
    store.rows["a"] = 100
    answer = await process(store, put_of(1, "a"), put_of(2, "b"))
    assert outcomes(answer) == [(1, "alreadyProcessed"), (2, None)]
    assert (store.rows, store.last) == ({"a": 100, "b": 2}, {CLIENT: 2})


async def test_a_gap_stops_the_push_where_it_is(store: RememberingStore) -> None:
    answer = await process(store, put_of(1), put_of(3), put_of(4))
    assert failed(answer) == ("oooMutation", [3, 4])
    assert (store.rows, store.last) == ({"k": 1}, {CLIENT: 1})


async def test_clients_of_a_group_are_counted_apart(store: RememberingStore) -> None:
    answer = await process(store, put_of(1, "a"), put_of(1, "b", "other"), put_of(2, "c"))
    assert outcomes(answer) == [(1, None), (1, None), (2, None)]
    assert sorted(store.last.values()) == [1, 2]


@pytest.mark.parametrize(
    ("bad", "reported"),
    [
        (mutation(1, "refuse", {"key": "k", "value": 1}), {"message": "not for ann", "details": {"key": "k"}}),
        (mutation(1, "nobody"), {"message": "Mutator not found: nobody"}),
        (
            mutation(1, "put", {"key": "k"}),
            {
                "message": "invalid arguments for put: value: Field required",
                "details": [{"path": "value", "message": "Field required"}],
            },
        ),
    ],
    ids=["refused", "unknown", "wrong arguments"],
)
async def test_a_failed_mutation_is_rolled_back_confirmed_and_reported(
    store: RememberingStore, bad: dict[str, Any], reported: dict[str, Any]
) -> None:
    answer = await process(store, bad, put_of(2, "after"))
    assert outcomes(answer) == [(1, "app"), (2, None)]
    assert (store.rows, store.last) == ({"after": 2}, {CLIENT: 2})
    assert store.results == {(CLIENT, 1): {"error": "app", **reported}}


async def test_the_text_of_a_bug_is_logged_and_the_client_gets_its_id(
    store: RememberingStore, caplog: pytest.LogCaptureFixture
) -> None:
    assert outcomes(await process(store, mutation(1, "crash"))) == [(1, "app")]
    (result,) = store.results.values()
    assert "out of luck" not in str(result)
    (record,) = [each for each in caplog.records if each.exc_info]
    assert result["message"].endswith(f"error id {record.__dict__['fields']['error_id']}")
    assert "out of luck" in caplog.text


async def test_a_transaction_the_store_gave_up_is_tried_again(store: RememberingStore) -> None:
    store.failures = [("commit", Passing("deadlock"))] * (ATTEMPTS - 1)
    assert outcomes(await process(store, put_of(1))) == [(1, None)]
    assert (store.rows, store.begun) == ({"k": 1}, ATTEMPTS)


async def test_a_transaction_given_up_again_and_again_is_refused_at_last(store: RememberingStore) -> None:
    store.failures = [("commit", Passing("deadlock"))] * ATTEMPTS
    assert outcomes(await process(store, put_of(1))) == [(1, "app")]
    assert (store.rows, store.last) == ({}, {CLIENT: 1})


async def test_a_store_that_is_away_leaves_the_mutation_to_be_pushed_again(store: RememberingStore) -> None:
    store.failures = [("begin", StoreUnavailable("gone"))]
    assert failed(await process(store, put_of(1), put_of(2))) == ("database", [1, 2])
    assert (store.rows, store.last) == ({}, {})
    assert outcomes(await process(store, put_of(1), put_of(2))) == [(1, None), (2, None)]


async def test_a_refusal_that_cannot_be_recorded_is_not_confirmed(store: RememberingStore) -> None:
    store.failures = [("record", OSError("disk full"))]
    assert failed(await process(store, mutation(1, "crash"), put_of(2))) == ("database", [1, 2])
    assert (store.last, store.results) == ({}, {})


async def test_a_commit_whose_answer_was_lost_is_not_refused(store: RememberingStore) -> None:
    """The data went in, the connection broke: trying to record a refusal finds the id taken."""

    class Lost(RememberingStore):
        def fail_at(self, place: str) -> None:
            if place == "commit" and self.begun == 1:
                self.rows, self.last = {"k": 1}, {CLIENT: 1}
                raise ConnectionError("the answer to COMMIT was lost")

    lost = Lost()
    assert outcomes(await process(lost, put_of(1))) == [(1, "alreadyProcessed")]
    assert (lost.rows, lost.last, lost.results) == ({"k": 1}, {CLIENT: 1}, {})


async def test_results_that_were_seen_are_deleted_without_an_answer(store: RememberingStore) -> None:
    await process(store, mutation(1, "crash"), mutation(2, "crash"), mutation(3, "crash"))
    single = {"type": "single", "clientGroupID": "group", "clientID": "client", "upToMutationID": 2}
    assert outcomes(await process(store, mutation(0, CLEANUP, single))) == []
    assert [key[1] for key in store.results] == [3]
    bulk = {"type": "bulk", "clientGroupID": "group", "clientIDs": ["client"]}
    assert outcomes(await process(store, mutation(0, CLEANUP, bulk), put_of(4))) == [(4, None)]
    assert store.results == {}


@pytest.mark.parametrize(
    "argument",
    [
        {"type": "single", "clientGroupID": "group", "clientID": "client", "upToMutationID": 9},
        {"type": "bulk", "clientGroupID": "group", "clientIDs": ["client"]},
    ],
)
async def test_results_of_another_group_stay(store: RememberingStore, argument: dict[str, Any]) -> None:
    await process(store, mutation(1, "crash"))
    assert outcomes(await process(store, mutation(0, CLEANUP, argument), group="other")) == []
    assert len(store.results) == 1


@pytest.mark.parametrize("argument", [None, {}, {"type": "bulk", "clientGroupID": "group", "clientIDs": []}])
async def test_a_clean_up_that_makes_no_sense_is_passed_over(store: RememberingStore, argument: Any) -> None:
    await process(store, mutation(1, "crash"))
    assert outcomes(await process(store, mutation(0, CLEANUP, argument))) == []
    assert len(store.results) == 1


async def test_an_unknown_push_version_is_refused_as_a_whole(store: RememberingStore) -> None:
    assert failed(await process(store, put_of(1), version=2)) == ("unsupportedPushVersion", [1])
    assert store.begun == 0
