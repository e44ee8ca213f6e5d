"""The official client against our cache and against the official one: the same steps, the same results, the same pokes.

Each cache has a store, an endpoint and an application of its own and goes through one scenario; then the two
transcripts are compared step by step. What a step must show is asserted as it happens, for both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cache.scenario import STEPS, Scenario
from tests.support.apps.server import AppServer
from tests.support.apps.store import AppStore, allow_reading, postgres_app_store, sqlite_app_store
from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.scenario_client import ScenarioClients
from tests.support.peers.serving import Serving
from tests.support.peers.zero_cache import ZeroCache

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

Transcript = dict[str, Any]
MakeCache = Callable[[Serving, AppServer, Path], ReferenceCache | ZeroCache]


def transcript(store: AppStore, folder: Path, stack: ExitStack, make_cache: MakeCache) -> Transcript:
    """Go through the scenario once."""
    options = ("--permissions", "allow-all", "--runner", "inline")
    endpoint = stack.enter_context(Serving(store.adapter, store.settings, folder / "state", options=options))
    stack.callback(lambda: print(f"--- endpoint ---\n{endpoint.process.tail(60)}"))
    endpoint.start()
    if store.adapter == "postgres":
        allow_reading(store, ("users", "issues", "comments", "labels", "issue_labels"))
    app = stack.enter_context(AppServer(store, "ann-token", "bob-token", "misfit-token"))
    cache = make_cache(endpoint, app, folder).start()
    clients = stack.enter_context(ScenarioClients(cache.url))
    return Scenario(store, endpoint, app, cache, clients).run()


def our_transcript(store: AppStore, folder: Path) -> Transcript:
    with ExitStack() as stack:

        def make(endpoint: Serving, app: AppServer, folder: Path) -> ReferenceCache:
            made = stack.enter_context(ReferenceCache(endpoint.stream_url, folder, settings=app.settings))
            stack.callback(lambda: [print(f"--- cache, exit {run.code} ---\n{run.tail(60)}") for run in made.runs])
            return made

        return transcript(store, folder, stack, make)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    folder = tmp_path_factory.mktemp("ours")
    return our_transcript(sqlite_app_store(folder / "app.db", *Scenario.TABLES), folder)


@pytest.fixture(scope="module")
def ours_over_postgres(logical_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    store = postgres_app_store(logical_postgres.create_database("scenario"), *Scenario.TABLES)
    return our_transcript(store, tmp_path_factory.mktemp("ours-over-postgres"))


@pytest.fixture(scope="module")
def official(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    folder = tmp_path_factory.mktemp("official")
    with ExitStack() as stack:
        make = stack.enter_context(zero_caches(postgres, folder))
        store = sqlite_app_store(folder / "app.db", *Scenario.TABLES)
        told = transcript(store, folder, stack, lambda endpoint, app, _: make(endpoint.stream_url, **app.settings))
    # The official cache now and then has a client come again before it refuses its schema; ours has no reason to.
    reason, kinds = told["schema_that_does_not_fit"]
    return {**told, "schema_that_does_not_fit": (reason, [kind for kind in kinds if kind != "Rehome"])}


def test_our_cache_goes_through_the_whole_scenario(ours: Transcript) -> None:
    assert list(ours) == list(STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_tells_clients_the_same_as_the_official_cache(ours: Transcript, official: Transcript, step: str) -> None:
    assert ours[step] == official[step]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_tells_the_same_whatever_the_store_is(
    ours: Transcript, ours_over_postgres: Transcript, step: str
) -> None:
    assert ours_over_postgres[step] == ours[step]
