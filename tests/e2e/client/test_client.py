"""The Python client against our cache and against the official one: the same session, the same views at every step."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client.session import STEPS, MakeCache, Session
from tests.support.apps.store import sqlite_app_store
from tests.support.apps.tracker import TABLES, TrackerApp
from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.serving import Serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

Transcript = dict[str, Any]


def transcript(folder: Path, stack: ExitStack, make_cache: MakeCache) -> Transcript:
    """Go through the session once, with a store, an endpoint and an application of its own."""
    store = sqlite_app_store(folder / "app.db", *TABLES)
    options = ("--permissions", "allow-all", "--runner", "inline")
    endpoint = stack.enter_context(Serving(store.adapter, store.settings, folder / "state", options=options))
    endpoint.start()
    app = stack.enter_context(TrackerApp(folder / "app.db", "ann-token", "bob-token"))
    cache = make_cache(endpoint.stream_url, app, folder).start()
    return asyncio.run(Session(cache, app, store, folder).run())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    with ExitStack() as stack:

        def make(source: str, app: TrackerApp, folder: Path) -> ReferenceCache:
            made = stack.enter_context(ReferenceCache(source, folder, settings=app.settings))
            stack.callback(lambda: [print(f"--- cache, exit {run.code} ---\n{run.tail(60)}") for run in made.runs])
            return made

        return transcript(tmp_path_factory.mktemp("ours"), stack, make)


@pytest.fixture(scope="module")
def official(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    folder = tmp_path_factory.mktemp("official")
    with ExitStack() as stack:
        make = stack.enter_context(zero_caches(postgres, folder))
        return transcript(folder, stack, lambda source, app, _: make(source, **app.settings))


def test_the_client_goes_through_the_whole_session_on_our_cache(ours: Transcript) -> None:
    assert list(ours) == list(STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_shows_the_same_on_the_official_cache(ours: Transcript, official: Transcript, step: str) -> None:
    assert ours[step] == official[step]
