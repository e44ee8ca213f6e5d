"""The official client on our cache, when the client's cookie and the cache's client view records disagree.

The CVR file is in the same folder as the replica. It may be deleted, or restored from an older copy, while clients keep
their rows and cookies. A client then either continues with correct rows or gets an error that makes it start over; it
never shows old rows as current ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.cache.scenario import RECONNECT_SECONDS, Scenario
from tests.support.apps.store import AppStore, sqlite_app_store
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.scenario_client import ScenarioClients
from tests.support.peers.serving import Serving

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


class World:
    def __init__(self, store: AppStore, cache: ReferenceCache, clients: ScenarioClients) -> None:
        self.store, self.cache, self.clients = store, cache, clients

    def records(self) -> list[Path]:
        """The files of the client view records; the cache does not run."""
        return sorted(self.cache.replica_file.parent.glob(f"{self.cache.replica_file.name}-cvr*"))

    def rename(self, name: str) -> None:
        self.store.run(f"UPDATE users SET name = '{name}' WHERE id = 'u1'")

    def open(self, client: str) -> None:
        self.clients.open(client)
        self.clients.query(client, "people")

    def sees(self, client: str, name: str) -> bool:
        return name in str(self.clients.rows(client, "people"))

    def wait_until_seen(self, client: str, name: str) -> None:
        self.clients.wait(lambda: self.sees(client, name), f"{client} sees {name}", seconds=RECONNECT_SECONDS)

    def wait_until_reset(self, client: str) -> None:
        def was_reset() -> bool:
            return any(self.clients.last(event, client) for event in ("state-not-found", "update-needed"))

        self.clients.wait(was_reset, f"{client} must start over", seconds=RECONNECT_SECONDS)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        store = sqlite_app_store(tmp_path / "app.db", *Scenario.TABLES)
        options = ("--permissions", "allow-all", "--runner", "inline")
        endpoint = stack.enter_context(Serving(store.adapter, store.settings, tmp_path / "state", options=options))
        endpoint.start()
        cache = stack.enter_context(ReferenceCache(endpoint.stream_url, tmp_path))
        cache.start()
        yield World(store, cache, stack.enter_context(ScenarioClients(cache.url)))


def test_a_client_whose_records_are_deleted_starts_over(world: World) -> None:
    world.open("ann")
    world.wait_until_seen("ann", "user 1")
    world.cache.stop()
    for file in world.records():
        file.unlink()
    world.rename("changed meanwhile")
    world.cache.start()
    world.wait_until_reset("ann")
    assert not world.sees("ann", "changed meanwhile")
    world.clients.close("ann")
    world.open("ann, reloaded")
    world.wait_until_seen("ann, reloaded", "changed meanwhile")


def test_a_client_ahead_of_restored_records_starts_over_and_another_continues(world: World) -> None:
    world.open("ann")
    world.wait_until_seen("ann", "user 1")
    world.cache.stop()
    copies = world.cache.replica_file.parent / "older records"
    copies.mkdir()
    for file in world.records():
        shutil.copy2(file, copies)
    world.cache.start()
    world.rename("after the copy")
    world.wait_until_seen("ann", "after the copy")
    world.cache.stop()
    for file in world.records():
        file.unlink()
    for copy in copies.iterdir():
        shutil.copy2(copy, world.cache.replica_file.parent)
    world.rename("after the restore")
    world.cache.start()

    def settled() -> bool:
        was_reset = any(world.clients.last(event, "ann") for event in ("state-not-found", "update-needed"))
        return was_reset or world.sees("ann", "after the restore")

    world.clients.wait(settled, "ann has current rows or must start over", seconds=RECONNECT_SECONDS)
    world.open("bob")
    world.wait_until_seen("bob", "after the restore")
    world.rename("and later")
    world.wait_until_seen("bob", "and later")
    assert "user 1" not in str(world.clients.shown("ann", "people")[-1])
