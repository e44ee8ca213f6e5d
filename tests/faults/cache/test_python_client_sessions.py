"""Two hundred random sessions of Python clients on our cache, and as many on the official one, killed in some of them:
all end up with the store's rows. So do sessions with an application that is late, fails and falls silent; and clients
that are cut off as soon as they are known, when the cache has just begun to work for them, push what they have.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator

import pytest

from changesource_sdk.testing.faults import Link
from tests.support.apps.client_sessions import SECONDS, Player, SessionWorld, play, session_world
from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer

pytestmark = pytest.mark.faults

FIRST = int(os.environ.get("CLIENT_SESSIONS_FIRST", "1000"))
SESSIONS = int(os.environ.get("CLIENT_SESSIONS", "200"))
SESSIONS_PER_KILL = 20
UNWELL_SESSIONS = 20
CUT_OFF = 100
AT_ONCE = 4
CUTS = 3


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


@pytest.mark.parametrize("cache", ["ours", "official"])
@pytest.mark.parametrize("seed", range(UNWELL_SESSIONS))
def test_a_session_ends_well_with_an_application_that_is_not(
    request: pytest.FixtureRequest, cache: str, seed: int
) -> None:
    world: SessionWorld = request.getfixturevalue(cache)
    asyncio.run(play(world, seed, unwell=True))


async def cut_off_when_known(world: SessionWorld, name: str, chance: random.Random) -> None:
    """A new client on a wire of its own, cut shortly after each of its first connections is established."""
    with Link("127.0.0.1", world.cache.port) as wire:
        player = Player(SessionWorld(world.store, world.app, world.cache, wire, world.folder), name, chance)
        await player.start()
        try:
            player.client.mutate.comment.add({"id": name, "issueId": "i1", "body": "soon"})
            for _ in range(CUTS):
                await player.client.wait_for("connected")
                await asyncio.sleep(chance.choice([0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.06]))
                wire.cut()
                await player.client.wait_for("connecting")
            await player.come_home()
        finally:
            await player.client.close()


async def many_cut_off(world: SessionWorld) -> None:
    async def some(line: int) -> None:
        for number in range(CUT_OFF // AT_ONCE):
            async with asyncio.timeout(SECONDS):
                await cut_off_when_known(world, f"cut{line}-{number}", random.Random(f"{line} {number}"))

    await asyncio.gather(*(some(line) for line in range(AT_ONCE)))


@pytest.mark.parametrize("cache", ["ours", "official"])
def test_clients_cut_off_as_soon_as_they_are_known_push_what_they_have(
    request: pytest.FixtureRequest, cache: str
) -> None:
    world: SessionWorld = request.getfixturevalue(cache)
    asyncio.run(many_cut_off(world))
    assert world.store.query("SELECT count(*) FROM comments WHERE body = 'soon'") == [(CUT_OFF,)]
