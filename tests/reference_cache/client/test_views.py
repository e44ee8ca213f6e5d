"""Live views: listeners are called after changes, at the next turn of the loop, and may raise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reference_cache.client import Client, ClientError, Transaction
from reference_cache.zql.ivm.view import Result
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import schema, table

ITEMS = schema([table("item", {"id": "string", "count": "number"})], {})
ALL = Queries(ITEMS).table("item")


def put(tx: Transaction, args: Any) -> None:
    tx.upsert("item", args)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client("http://127.0.0.1:1", ITEMS, mutators={"put": put}, offline=True) as made:
        yield made


async def turn() -> None:
    """Let what was scheduled run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_listener_is_called_now_and_after_every_change(client: Client) -> None:
    view = client.query(ALL)
    results: list[Result] = []
    stop = view.listen(lambda result, status: results.append(result))
    client.mutate.put({"id": "a", "count": 1})
    client.mutate.put({"id": "a", "count": 2})
    assert view.result == [{"id": "a", "count": 2}]
    await turn()
    stop()
    client.mutate.put({"id": "a", "count": 3})
    await turn()
    assert results == [[], [{"id": "a", "count": 2}]]


async def test_a_write_that_changes_nothing_calls_no_listener(client: Client) -> None:
    view = client.query(ALL.where("count", ">", 5))
    results: list[Result] = []
    view.listen(lambda result, status: results.append(result))
    client.mutate.put({"id": "a", "count": 1})
    client.mutate.put({"id": "b", "count": 9})
    client.mutate.put({"id": "b", "count": 1})
    await turn()
    assert results == [[]]


async def test_a_listener_may_mutate_and_close_views(client: Client) -> None:
    first, second = client.query(ALL), client.query(ALL)

    def answer(result: Result, status: str) -> None:
        if result and not first.is_closed:
            first.close()
            client.mutate.put({"id": "b", "count": 2})

    first.listen(answer)
    client.mutate.put({"id": "a", "count": 1})
    result = await second.until(lambda result: isinstance(result, list) and len(result) == 2)
    assert result == [{"id": "a", "count": 1}, {"id": "b", "count": 2}]


async def test_a_listener_that_fails_does_not_stop_the_others(client: Client) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    view = client.query(ALL)
    results: list[Result] = []

    def fail(result: Result, status: str) -> None:
        if result:
            raise ValueError("a mistake")

    view.listen(fail)
    view.listen(lambda result, status: results.append(result))
    client.mutate.put({"id": "a", "count": 1})
    await turn()
    assert results[-1] == [{"id": "a", "count": 1}]
    assert [str(context["exception"]) for context in reported] == ["a mistake"]


async def test_changes_can_be_walked_through(client: Client) -> None:
    view = client.query(ALL)
    seen: list[Result] = []
    async for result in view.changes():
        seen.append(result)
        if len(seen) == 3:
            view.close()
        else:
            client.mutate.put({"id": "a", "count": len(seen)})
    assert seen == [[], [{"id": "a", "count": 1}], [{"id": "a", "count": 2}]]


async def test_a_call_that_waits_for_a_view_raises_when_it_is_closed(client: Client) -> None:
    view = client.query(ALL)
    waiting = asyncio.create_task(view.complete())
    await turn()
    view.close()
    with pytest.raises(ClientError, match="view-closed"):
        await waiting
