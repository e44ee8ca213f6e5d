"""Queries made to stop the cache: a healthy client beside them is served, and the cache stops when it is told to.

One cache serves all attacks, one after the other. The bounds are wide, for machines that are busy; what a quiet one
shows is printed (`pytest -s`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.support.fakes.sync_client import SyncClient, sync_client, sync_url
from tests.support.fakes.tiny_source import TinySource, insert
from tests.support.peers.reference_cache import ReferenceCache

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCHEMA = {"tables": {"item": {"columns": {"id": {"type": "number"}, "name": {"type": "string"}}, "primaryKey": ["id"]}}}
ROWS = 500
PING_SECONDS, COMMIT_SECONDS = 3.0, 10.0


def compare(left: Any, op: str, value: Any) -> dict[str, Any]:
    return {"type": "simple", "op": op, "left": left, "right": {"type": "literal", "value": value}}


def column(name: str) -> dict[str, Any]:
    return {"type": "column", "name": name}


def items(**more: Any) -> dict[str, Any]:
    return {"table": "item", **more}


def same_name(**more: Any) -> dict[str, Any]:
    correlation = {"parentField": ["name"], "childField": ["name"]}
    return {"system": "client", "correlation": correlation, "subquery": {"table": "item", "alias": "same", **more}}


def any_of(conditions: list[dict[str, Any]]) -> dict[str, Any]:
    return items(where={"type": "or", "conditions": conditions})


LONG = {"type": "literal", "value": "a" * 150_000}
PATTERN = "%" + "a" * 4000 + "b%c"
ATTACKS: dict[str, list[dict[str, Any]]] = {
    "nested relationships": [items(related=[same_name(related=[same_name()])])],
    "a pattern against a long text": [items(where=compare(LONG, "LIKE", PATTERN))],
    "a list of a million members": [items(where=compare(column("id"), "IN", list(range(1_000_000))))],
    "sixty thousand conditions": [any_of([compare(column("id"), "=", number) for number in range(60_000)])],
    "as many patterns as are allowed": [
        any_of([compare(column("name"), "LIKE", f"%{number}%x%") for number in range(1900)])
    ],
    "as many queries as are allowed": [items(where=compare(column("id"), "=", number)) for number in range(5000)],
}


def first_message(queries: list[dict[str, Any]]) -> dict[str, Any]:
    patch = [{"op": "put", "hash": f"h{number}", "ast": query} for number, query in enumerate(queries)]
    return {"desiredQueriesPatch": patch, "clientSchema": SCHEMA}


@asynccontextmanager
async def attacker(cache: ReferenceCache, name: str, queries: list[dict[str, Any]]) -> AsyncIterator[SyncClient]:
    async with sync_client(sync_url(cache.port, name, f"group of {name}")) as client:
        with suppress(ConnectionClosed):
            await client.say("initConnection", first_message(queries))
        yield client


async def pings(client: SyncClient, seconds: float) -> list[float]:
    """How long pings took to be answered, one after the other for some time."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        await client.say("ping", {})
        await client.hear("pong")
        found.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    return found


async def commit(source: TinySource, client: SyncClient, key: int) -> float:
    """Seconds from a commit until a client has it."""
    began = time.perf_counter()
    source.commit(insert(key, "healthy"))
    await client.hear("pokePart", where=lambda body: f'"id": {key}' in str(body).replace("'", '"'))
    return time.perf_counter() - began


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReferenceCache, TinySource]]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    rows = [insert(number, "same") for number in range(ROWS)]
    with TinySource(*rows) as source, ReferenceCache(source.url, folder) as cache:
        yield cache.start(), source


@pytest.mark.parametrize("name", list(ATTACKS))
async def test_a_healthy_client_is_served_beside(served: tuple[ReferenceCache, TinySource], name: str) -> None:
    cache, source = served
    key = 1000 + list(ATTACKS).index(name)
    mine = items(where=compare(column("name"), "=", "healthy"))
    async with sync_client(sync_url(cache.port, "ann", "ann"), init=first_message([mine])) as healthy:
        await healthy.hear("pokeEnd")
        async with attacker(cache, name, ATTACKS[name]):
            times = await pings(healthy, 1.5)
            committed = await commit(source, healthy, key)
            times += await pings(healthy, 0.5)
    times.sort()
    print(f"{name}: p99 {times[int(len(times) * 0.99)] * 1000:.0f} ms, longest {times[-1] * 1000:.0f} ms,", end=" ")
    print(f"commit to poke {committed * 1000:.0f} ms, {_megabytes(cache.process.pid)} MB")
    assert times[-1] < PING_SECONDS
    assert committed < COMMIT_SECONDS


async def test_the_cache_stops_in_the_middle_of_a_query_that_takes_minutes(
    served: tuple[ReferenceCache, TinySource],
) -> None:
    cache, _ = served
    async with attacker(cache, "last", ATTACKS["nested relationships"]) as client:
        await client.hear("connected")
        began = time.perf_counter()
        await asyncio.to_thread(cache.stop)
        assert time.perf_counter() - began < 30


def _megabytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
