"""The official client against our cache and against the official one: the same steps, the same results, the same pokes.

Each cache has a store, an endpoint and an application of its own and goes through one scenario; then the two
transcripts are compared step by step. What a step must show is asserted as it happens, for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cache_scenario import STEPS, Scenario
from tests.support.app_server import AppServer
from tests.support.fix_serving import servings
from tests.support.fix_zero_cache import zero_caches
from tests.support.postgres_server import PostgresServer
from tests.support.reference_cache import ReferenceCache
from tests.support.scenario_client import ScenarioClients
from tests.support.serving import Serving
from tests.support.sqlite_store import SqliteStore
from tests.support.zero_cache import ZeroCache

pytestmark = pytest.mark.e2e

Transcript = dict[str, Any]
MakeCache = Callable[[Serving, AppServer, Path], ReferenceCache | ZeroCache]


def transcript(folder: Path, stack: ExitStack, make_cache: MakeCache) -> Transcript:
    """Go through the scenario once."""
    store = SqliteStore(folder / "app.db", *Scenario.TABLES)
    make_endpoint = stack.enter_context(servings(folder))
    endpoint = make_endpoint(store).start()
    app = stack.enter_context(AppServer(store.path, "ann-token", "fresh"))
    cache = make_cache(endpoint, app, folder).start()
    clients = stack.enter_context(ScenarioClients(cache.url))
    return Scenario(store, endpoint, app, cache, clients).run()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcript]:
    with ExitStack() as stack:

        def make(endpoint: Serving, app: AppServer, folder: Path) -> ReferenceCache:
            made = stack.enter_context(ReferenceCache(endpoint.stream_url, folder, settings=app.settings))
            stack.callback(lambda: [print(f"--- cache, exit {run.code} ---\n{run.tail(60)}") for run in made.runs])
            return made

        yield transcript(tmp_path_factory.mktemp("ours"), stack, make)


@pytest.fixture(scope="module")
def official(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcript]:
    folder = tmp_path_factory.mktemp("official")
    with ExitStack() as stack:
        make_official = stack.enter_context(zero_caches(postgres, folder))
        yield transcript(folder, stack, lambda endpoint, app, _: make_official(endpoint.stream_url, **app.settings))


def test_our_cache_goes_through_the_whole_scenario(ours: Transcript) -> None:
    assert list(ours) == list(STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_tells_clients_the_same_as_the_official_cache(ours: Transcript, official: Transcript, step: str) -> None:
    assert ours[step] == official[step]
