"""The demo's page is shown to those who ask for this machine, and to nobody whose own name points here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from changesource_demo.flow import DemoFlow
from changesource_demo.page_server import PageServer


class _Still:
    """A flow that never changes."""

    cache = SimpleNamespace(port=4848)

    async def picture(self) -> dict[str, Any]:
        return {}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = PageServer(cast(DemoFlow, _Still()), "run")
    yield await server.start("127.0.0.1", 0)
    await server.stop()


async def status(port: int, path: str, host: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}", headers={"Host": host}) as answer,
    ):
        return answer.status


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST", "[::1]:{port}", "192.0.2.7", "demo.localhost"]
)
async def test_this_machine_may_be_named_by_address_or_as_localhost(port: int, host: str) -> None:
    assert await status(port, "/setup", host.format(port=port)) == 200


@pytest.mark.parametrize("path", ["/", "/setup", "/events", "/app.js"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", "[", ""]
)
async def test_another_name_that_points_here_is_refused(port: int, path: str, host: str) -> None:
    assert await status(port, path, host.format(port=port)) in (400, 403)
