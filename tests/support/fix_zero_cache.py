"""Fixtures that run the official zero-cache and client: `zero_cache`, `zero_client` make what a test needs.

A cache takes seconds to start, so tests that only read share one (module-scoped fixtures build on
`zero_caches`). The last lines of every cache are printed at the end; pytest shows them with a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.zero_cache import ZeroCache
from tests.support.zero_client import ZeroClient

MakeZeroCache = Callable[..., ZeroCache]
MakeZeroClient = Callable[[ZeroCache, Mapping[str, Mapping[str, str]]], ZeroClient]


@contextmanager
def zero_caches(postgres: PostgresServer, folder: Path) -> Iterator[MakeZeroCache]:
    """A function that makes caches (not yet started), each with a database of its own; all end with the context."""
    with ExitStack() as stack:

        def make(source_url: str, *, app_id: str = "zero", supervised: bool = False, **settings: str) -> ZeroCache:
            database = postgres.create_database(app_id)
            cache = ZeroCache(source_url, database, folder, app_id=app_id, supervised=supervised, settings=settings)
            stack.callback(_show, cache)
            return stack.enter_context(cache)

        yield make


@pytest.fixture
def zero_cache(postgres: PostgresServer, tmp_path: Path) -> Iterator[MakeZeroCache]:
    with zero_caches(postgres, tmp_path) as make:
        yield make


@pytest.fixture
def zero_client() -> Iterator[MakeZeroClient]:
    with ExitStack() as stack:
        yield lambda cache, tables: stack.enter_context(ZeroClient(cache.url, tables))


def _show(cache: ZeroCache) -> None:
    for number, run in enumerate(cache.runs):
        print(f"--- zero-cache {cache.replica.path.name} run {number}, exit {run.code} ---\n{run.tail(60)}")
