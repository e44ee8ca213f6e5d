"""A written state directory and an endpoint that serves it, both real, on a free port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from changesource_sdk.changelog.postgres.store import PostgresLogStore
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.server import Endpoint
from changesource_sdk.system_tables import Permissions
from changesource_sdk.testing.fake_cache import FakeCache
from service_kit.logs import LOGGER_NAME
from tests.changesource_sdk.changelog.logs_under_test import postgres_store
from tests.changesource_sdk.endpoint.written_state import WrittenState


@pytest.fixture
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WrittenState]:
    """A state directory with its log inside, or in Postgres where a test asks for that."""
    store: LogStore = SqliteLogStore(tmp_path / "state")
    if getattr(request, "param", "sqlite") == "postgres":
        store = postgres_store(request.getfixturevalue("postgres").url(), tmp_path / "state")
    written = WrittenState(store)
    yield written
    written.close()
    store.close()


class Running:
    """An endpoint and where to reach it."""

    def __init__(self, endpoint: Endpoint, port: int) -> None:
        self.endpoint = endpoint
        self.port = port
        self.url = f"ws://127.0.0.1:{port}/changes/v0/stream"

    def cache(self, **options: Any) -> FakeCache:
        return FakeCache(self.url, **options)

    def metric(self, name: str, **labels: str) -> float:
        return self.endpoint.metrics.registry.get_sample_value(name, labels) or 0.0


class Events(logging.Handler):
    """What the endpoint logs, as something to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._more.set()

    async def seen(self, what: str, **fields: str) -> None:
        """Return once an event with these fields was logged."""
        while not any(
            r.getMessage() == what and fields.items() <= getattr(r, "fields", {}).items() for r in self.records
        ):
            self._more.clear()
            await self._more.wait()


@pytest.fixture
async def events() -> AsyncIterator[Events]:
    handler = Events()
    root = logging.getLogger(LOGGER_NAME)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


Serve = Callable[..., Awaitable[Running]]


def _log(store: LogStore) -> dict[str, Any]:
    """The options that lead an endpoint to this log."""
    if isinstance(store, PostgresLogStore):
        return {"log": store.address.url, "log_schema": store.address.schema}
    return {}


@pytest.fixture
async def serve(state: WrittenState) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(permissions: str = "null", **options: Any) -> Running:
            config = replace(ServeConfig(listen="127.0.0.1:0", state=state.directory), **_log(state.store), **options)
            endpoint = Endpoint(config, Permissions.parse(permissions))
            port = await endpoint.start()
            stack.push_async_callback(endpoint.stop)
            return Running(endpoint, port)

        yield start
