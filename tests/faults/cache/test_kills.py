"""A busy store, a client that comes back with its cookie, and a seeded hand that kills the cache or the endpoint.

Every poke must leave the client with whole transactions (the total of all balances never changes), and in the end with
exactly the rows of the store, without ever having started over. Knobs: `FAULT_SEED`, `FAULT_ROUNDS`.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.faults.test_kill_loop import ACCOUNTS, BALANCE, SEED, SLOW_ROUNDS, Bank
from tests.support.fakes.sync_client import sync_client, sync_url
from tests.support.fakes.view_mirror import ViewMirror
from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.peers.reference_cache import ReferenceCache

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

COLUMNS = {"account": ("id", "balance"), "ledger": ("id", "source", "target", "amount")}
SCHEMA = {
    name: {"columns": {column: {"type": "number"} for column in columns}, "primaryKey": ["id"]}
    for name, columns in COLUMNS.items()
}
QUERIES = [{"op": "put", "hash": name, "ast": {"table": name, "orderBy": [["id", "asc"]]}} for name in COLUMNS]
LOST = (ConnectionClosed, InvalidHandshake, OSError, TimeoutError)


async def follow(port: int, mirror: ViewMirror) -> None:
    """Stay connected, however often the cache goes away, until cancelled."""
    while True:
        first: dict[str, Any] = {"desiredQueriesPatch": QUERIES, "clientSchema": {"tables": SCHEMA}}
        init = {"desiredQueriesPatch": []} if mirror.cookie else first
        mirror.reconnected()
        try:
            async with sync_client(sync_url(port, "c1", "g1", cookie=mirror.cookie or ""), init=init) as client:
                async for text in client.socket:
                    if mirror.take(json.loads(text)) and mirror.table("account"):
                        assert sum(row["balance"] for row in mirror.table("account")) == ACCOUNTS * BALANCE
        except LOST:
            await asyncio.sleep(0.05)


def is_same(mirror: ViewMirror, bank: Bank) -> bool:
    for name, columns in COLUMNS.items():
        stored = bank.store.query(f"SELECT {', '.join(columns)} FROM {name} ORDER BY id")
        shown = sorted(tuple(row[column] for column in columns) for row in mirror.table(name))
        if stored != shown:
            return False
    return True


async def test_a_client_gets_exactly_the_difference_after_every_kill(
    store: MakeStore, serving: MakeServing, tmp_path: Path
) -> None:
    print(f"FAULT_SEED={SEED}")
    chance = random.Random(SEED)
    bank = Bank(store(), SEED)
    endpoint = serving(bank.store).start()
    mirror = ViewMirror({"account": ("id",), "ledger": ("id",)})
    with ReferenceCache(endpoint.stream_url, tmp_path) as cache:
        await asyncio.to_thread(cache.start)
        following = asyncio.create_task(follow(cache.port, mirror))
        with bank:
            for _ in range(SLOW_ROUNDS):
                wanted = mirror.pokes + chance.randrange(1, 20)
                await _until(following, lambda wanted=wanted: mirror.pokes > wanted)
                victim = chance.choice((cache, cache, endpoint))
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(victim.start)
        await _until(following, lambda: is_same(mirror, bank))
        following.cancel()
    assert bank.moves > 0


async def _until(following: asyncio.Task[None], happened: Any) -> None:
    async with asyncio.timeout(120):
        while not happened():
            if following.done():
                following.result()
            await asyncio.sleep(0.02)
