"""Clients that push until they are answered, and a seeded hand that kills the application's server meanwhile.

Whatever was cut off, pushed again or answered twice: in the end every mutation was done exactly once, and every refusal
left its result. Knobs: `FAULT_SEED`, `FAULT_ROUNDS`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.apps.store import AppStore, sqlite_app_store
from tests.support.child_process import ChildProcess
from tests.support.ports import free_port, is_listening
from tests.support.tools import REPOSITORY

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

SEED = int(os.environ.get("FAULT_SEED", "1"))
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "15"))
CLIENTS = 4
COUNTER = ("CREATE TABLE counter (id INTEGER PRIMARY KEY NOT NULL, n INTEGER)", "INSERT INTO counter VALUES (1, 0)")


class Pusher:
    """One client: it numbers its mutations and pushes each until it is answered."""

    def __init__(self, name: str, port: int, chance: random.Random) -> None:
        self.name, self.chance = name, chance
        self.url = f"http://127.0.0.1:{port}/mutate?schema=zero_0&appID=zero"
        self.done = 0
        self.refused: set[int] = set()

    async def run(self, stop: asyncio.Event) -> None:
        async with aiohttp.ClientSession() as session:
            while not stop.is_set():
                number = self.done + 1
                name = self.chance.choice(["add", "add", "add and refuse"])
                if name != "add":
                    self.refused.add(number)
                await self._push(session, number, name)
                self.done = number

    async def _push(self, session: aiohttp.ClientSession, number: int, name: str) -> None:
        mutation = {"type": "custom", "id": number, "clientID": self.name, "name": name, "args": []}
        body = {"clientGroupID": "g", "mutations": [mutation], "pushVersion": 1}
        while True:
            try:
                async with session.post(self.url, json=body) as answer:
                    told = await answer.json()
                assert told["kind"] == "MutateResponse", told
                return
            except (aiohttp.ClientError, ConnectionError):
                await asyncio.sleep(0.01)


async def served(database: Path, port: int) -> ChildProcess:
    command: list[str | Path] = [sys.executable, "-m", "tests.faults.cache.counting_app", str(database), str(port)]
    process = ChildProcess(command, cwd=REPOSITORY)
    async with asyncio.timeout(120):
        while not await asyncio.to_thread(is_listening, port):
            assert process.running, process.tail()
            await asyncio.sleep(0.02)
    return process


async def test_every_mutation_is_done_exactly_once_however_often_the_server_is_killed(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    path = tmp_path / "app.db"
    store = sqlite_app_store(path, *COUNTER)
    port = free_port()
    pushers = [Pusher(f"c{number}", port, random.Random(chance.random())) for number in range(CLIENTS)]
    stop = asyncio.Event()
    process = await served(path, port)
    running = [asyncio.create_task(pusher.run(stop)) for pusher in pushers]
    try:
        for _ in range(ROUNDS):
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            await asyncio.to_thread(process.kill)
            process = await served(path, port)
        stop.set()
        await asyncio.wait_for(asyncio.gather(*running), 120)
    finally:
        for task in running:
            task.cancel()
        await asyncio.to_thread(process.kill)
    check(store, pushers)


def check(store: AppStore, pushers: list[Pusher]) -> None:
    expected = sum(pusher.done - len(pusher.refused) for pusher in pushers)
    assert expected > ROUNDS
    assert store.query("SELECT n FROM counter") == [(expected,)]
    last: list[Any] = store.query('SELECT "clientID", "lastMutationID" FROM {clients} ORDER BY 1')
    assert last == [(pusher.name, pusher.done) for pusher in pushers]
    kept = set(store.query('SELECT "clientID", "mutationID" FROM {mutations}'))
    assert kept == {(pusher.name, number) for pusher in pushers for number in pusher.refused}
