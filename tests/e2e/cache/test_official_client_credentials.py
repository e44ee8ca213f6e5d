"""The official client on our cache with signed tokens: expiry, renewal, tabs, restarts, logging in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from tests.e2e.cache.scenario import RECONNECT_SECONDS, Scenario
from tests.reference_cache.sync_server.tokens import hs256
from tests.support.apps.store import AppStore, sqlite_app_store
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.scenario_client import ScenarioClients
from tests.support.peers.serving import Serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SECRET = "a secret that is long enough for HMAC"


def token(lifetime: float = 3600.0) -> str:
    now = time.time()
    return hs256(SECRET, sub="ann", iat=now, exp=now + lifetime)


class World:
    def __init__(self, store: AppStore, cache: ReferenceCache, clients: ScenarioClients) -> None:
        self.store, self.cache, self.clients = store, cache, clients

    def open(self, client: str, **options: str) -> str:
        """Open a client that wants the people; its group."""
        self.clients.open(client, **options)
        self.clients.query(client, "people")
        opened = self.clients.last("opened", client)
        assert opened is not None
        return str(opened["groupID"])

    def wait_for_state(self, client: str, state: str) -> None:
        self.clients.wait(lambda: self.clients.state(client) == state, f"{client} {state}", seconds=RECONNECT_SECONDS)

    def _sees(self, client: str, name: str) -> bool:
        return name in str(self.clients.rows(client, "people"))

    def everybody_sees(self, name: str, *clients: str) -> None:
        self.store.run(f"UPDATE users SET name = '{name}' WHERE id = 'u1'")
        for client in clients:
            self.clients.wait(
                partial(self._sees, client, name),
                f"{client} sees {name}",
                seconds=RECONNECT_SECONDS,
            )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("credentials")
    with ExitStack() as stack:
        store = sqlite_app_store(folder / "app.db", *Scenario.TABLES)
        options = ("--permissions", "allow-all", "--runner", "inline")
        endpoint = stack.enter_context(Serving(store.adapter, store.settings, folder / "state", options=options))
        endpoint.start()
        settings = {"ZERO_AUTH_SECRET": SECRET}
        cache = stack.enter_context(ReferenceCache(endpoint.stream_url, folder, settings=settings))
        stack.callback(lambda: [print(f"--- cache, exit {run.code} ---\n{run.tail(60)}") for run in cache.runs])
        cache.start()
        yield World(store, cache, stack.enter_context(ScenarioClients(cache.url)))


def test_a_client_renews_its_token_and_stays_in_its_group(world: World) -> None:
    group = world.open("ann", userID="ann", auth=token(5))
    world.everybody_sees("before", "ann")
    world.wait_for_state("ann", "needs-auth")
    world.clients.connect("ann", token())
    world.wait_for_state("ann", "connected")
    world.everybody_sees("renewed", "ann")
    world.clients.connect("ann", token())
    assert world.open("tab", userID="ann", auth=token()) == group
    world.everybody_sees("both", "ann", "tab")
    assert world.clients.last("state-not-found", "ann") is None


def test_clients_come_back_to_their_group_after_a_restart(world: World) -> None:
    world.cache.kill()
    world.cache.start()
    world.everybody_sees("restarted", "ann", "tab")
    assert all(world.clients.last("state-not-found", client) is None for client in ("ann", "tab"))


def test_a_tab_without_a_token_is_asked_for_one(world: World) -> None:
    world.open("bare", userID="ann")
    world.wait_for_state("bare", "needs-auth")
    assert world.clients.frames("bare", "pokePart") == []
    world.clients.connect("bare", token())
    world.everybody_sees("with a token", "bare", "ann")


def test_logging_in_is_another_group(world: World) -> None:
    visitor = world.open("visitor")
    world.everybody_sees("public", "visitor")
    world.clients.close("visitor")
    assert world.open("ann again", userID="ann", auth=token()) != visitor
    world.everybody_sees("logged in", "ann again")
