"""A consumer that comes back however often its stream is lost, as zero-cache does, and looks at every commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from websockets.exceptions import ConnectionClosed, InvalidHandshake

from changesource_sdk.testing.fake_cache import FakeCache

LOST = (ConnectionClosed, InvalidHandshake, OSError, TimeoutError, EOFError)
PAUSE_S = 0.025
"""zero-cache's own pause between attempts."""


async def follow(cache: FakeCache, complete: Callable[[], bool], look: Callable[[FakeCache], None]) -> None:
    """Follow until `complete`; `look` sees the consumer after every commit."""
    while not complete():
        try:
            async with cache.stream():
                while not complete():
                    await _take_one(cache)
                    look(cache)
        except LOST:
            await asyncio.sleep(PAUSE_S)


async def _take_one(cache: FakeCache) -> None:
    """One whole transaction, however long it takes, unless the stream falls silent."""
    commits = len(cache.commits)
    while len(cache.commits) == commits:
        await asyncio.wait_for(cache.receive(), 2)
