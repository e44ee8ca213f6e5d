"""An application's server, as a thread of the test's process.

Contract: from entering the context to leaving it, the application that `_application` makes answers at `url`; what it
holds is let go by `_close`. Both run on the thread's own loop.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Self

from aiohttp import web

SECONDS = 60.0


class AppThread(ABC):
    """One server on a free port of the loopback interface."""

    url = ""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    @property
    def settings(self) -> dict[str, str]:
        """What a cache must know of it."""
        return {"ZERO_QUERY_URL": f"{self.url}/query", "ZERO_MUTATE_URL": f"{self.url}/mutate"}

    @abstractmethod
    def _application(self) -> web.Application:
        """What is served."""

    @abstractmethod
    async def _close(self) -> None:
        """Let go of what the application holds."""

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)

    async def _start(self) -> None:
        self._runner = web.AppRunner(self._application(), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._close()
