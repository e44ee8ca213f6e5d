"""An application, and ways to post to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.support.fakes.app_stub import AppStub, app_stub


@pytest.fixture
async def app() -> AsyncIterator[AppStub]:
    async with app_stub() as stub:
        yield stub


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made
