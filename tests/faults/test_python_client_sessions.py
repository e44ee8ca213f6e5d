"""Two hundred random sessions of Python clients on our cache, and as many on the official one, killed in some of them:
all end up with the store's rows.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator

import pytest

from tests.support.client_sessions import SessionWorld, play, session_world
from tests.support.fix_zero_cache import zero_caches
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.faults

FIRST = int(os.environ.get("CLIENT_SESSIONS_FIRST", "1000"))
SESSIONS = int(os.environ.get("CLIENT_SESSIONS", "200"))
SESSIONS_PER_KILL = 20


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionWorld]:
    with session_world(tmp_path_factory.mktemp("sessions")) as made:
        yield made


@pytest.fixture(scope="module")
def official(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionWorld]:
    folder = tmp_path_factory.mktemp("sessions")
    with (
        zero_caches(postgres, folder) as make,
        session_world(folder, lambda source, settings: make(source, **settings)) as made,
    ):
        yield made


async def killed_meanwhile(world: SessionWorld, seed: int) -> None:
    """A session during which the cache is killed and started again."""
    playing = asyncio.create_task(play(world, seed))
    await asyncio.sleep(random.Random(seed).random() / 2)
    await asyncio.to_thread(world.cache.kill)
    await asyncio.to_thread(world.cache.start)
    await playing


@pytest.mark.parametrize("cache", ["ours", "official"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SESSIONS))
def test_a_session_ends_with_what_the_store_has(request: pytest.FixtureRequest, cache: str, seed: int) -> None:
    world: SessionWorld = request.getfixturevalue(cache)
    asyncio.run(killed_meanwhile(world, seed) if seed % SESSIONS_PER_KILL == 0 else play(world, seed))
    assert world.cache.process.running
