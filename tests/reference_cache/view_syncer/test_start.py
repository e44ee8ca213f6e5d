"""Starting before there is a replica, and with one that is older than what clients have seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reference_cache.view_syncer.api import SyncerOptions
from reference_cache.view_syncer.syncer import ViewSyncer
from tests.reference_cache.view_syncer.clients import App, Client, named
from tests.reference_cache.view_syncer.conftest import QUERIES, Setup, issue
from tests.reference_cache.view_syncer.world import World


async def test_the_syncer_waits_for_the_first_replica(tmp_path: Path) -> None:
    syncer = ViewSyncer(SyncerOptions(tmp_path / "replica.db", tmp_path / "cvr.db"), App(QUERIES))
    starting = asyncio.ensure_future(syncer.start())
    syncer.notify()
    await asyncio.sleep(0)
    assert not starting.done()
    World(tmp_path / "replica.db")
    syncer.notify()
    await starting
    client = Client("c1", "g1")
    await client.connect(syncer, [named("all")])
    assert client.got == {"all"}
    await syncer.stop()


async def test_nobody_is_served_from_a_replica_older_than_what_clients_have_seen(setup: Setup, tmp_path: Path) -> None:
    world, client = setup.world, Client("c1", "g1")
    await setup.commit(("put", "issue", issue("1")))
    await setup.syncer.stop()
    world.back_up(tmp_path / "backup.db")
    await setup.start_again()
    await client.connect(setup.syncer, [named("all")])
    await setup.commit(("put", "issue", issue("2")))
    await setup.syncer.stop()
    world.restore(tmp_path / "backup.db")
    await setup.start_again()
    connecting = asyncio.ensure_future(client.connect(setup.syncer))
    for _ in range(50):  # turns in which it could have been served
        await asyncio.sleep(0)
    assert not connecting.done()
    await setup.commit(("put", "issue", issue("2")))
    await connecting
    assert client.rows == world.everything()
