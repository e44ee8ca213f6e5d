"""Background tasks of the endpoint: wake-ups of the log, pruning, and reading the API keys again.

A background task that fails (a full disk, a damaged file) logs that once per kind and interval, waits, and tries again;
the streams continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import time

from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.changelog.coordination.requests import Requests
from changesource_sdk.changelog.coordination.seeds import Seeds
from changesource_sdk.changelog.coordination.wakeup import SAFETY_POLL_S, WakeupListener
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.retention import forgettable, prune_point
from changesource_sdk.endpoint.access.keys import KeyRing
from changesource_sdk.errors import ChangesourceError
from service_kit.logs import Throttle, event

#: Seconds a failing task waits before it tries again.
RETRY = 1.0
#: Seconds between checks of the API key file.
KEY_INTERVAL = 1.0


async def persistently(name: str, task: Callable[[], Awaitable[None]], log: logging.Logger, throttle: Throttle) -> None:
    """Run a task that never ends; restart it after `ChangesourceError` and `OSError`, until cancelled."""
    while True:
        try:
            await task()
        except (ChangesourceError, OSError) as error:
            if throttle.admit(f"{name}:{type(error).__name__}") is not None:
                fix = error.fix if isinstance(error, ChangesourceError) else None
                event(log, logging.ERROR, f"{name} failed, trying again", error=str(error), fix=fix)
            await asyncio.sleep(RETRY)


class KeyWatch:
    """Reads the API key file again when it changes."""

    def __init__(self, keys: KeyRing, on_change: Callable[[], Awaitable[None]]) -> None:
        self._keys = keys
        self._on_change = on_change

    async def run(self) -> None:
        """Check every `KEY_INTERVAL` until cancelled. Raises `ConfigurationError` for an unusable file."""
        while True:
            if await asyncio.to_thread(self._keys.refresh):
                await self._on_change()
            await asyncio.sleep(KEY_INTERVAL)


class LogWakeups:
    """The log's wake-ups on the event loop. Invariant: one that arrives between two calls of `wait` is not lost."""

    def __init__(self, listener: WakeupListener) -> None:
        self._listener = listener
        # Set when a wake-up arrives, cleared by `wait`.
        self._woken = asyncio.Event()
        asyncio.get_running_loop().add_reader(listener.fileno(), self._wake)

    def _wake(self) -> None:
        self._listener.drain()
        self._woken.set()

    async def wait(self) -> None:
        """Return at the next wake-up, or after `SAFETY_POLL_S`, because wake-ups may be lost."""
        try:
            async with asyncio.timeout(SAFETY_POLL_S):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()


class Pruner:
    """Requests pruning from the pipeline, which owns the log: of what every consumer has and a snapshot contains."""

    def __init__(
        self,
        requests: Requests,
        reader: Log,
        coordination: Coordination,
        interval: float,
        expiry: float,
    ) -> None:
        self._requests = requests
        self._seeds = Seeds(coordination)
        self._reader = reader
        self._coordination = coordination
        self._interval = interval
        self._expiry_ms = expiry * 1000

    async def run(self) -> None:
        """Prune every `interval` seconds until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            await asyncio.to_thread(self.prune)

    def prune(self) -> str | None:
        """Request pruning; returns the requested watermark, None if there is nothing to prune. Blocking."""
        known = self._reader.snapshots()
        if not known:
            return None
        now_ms, consumers = time() * 1000, self._coordination.consumers()
        for key in forgettable(consumers, self._reader.state().oldest, now_ms, self._expiry_ms):
            self._coordination.forget(key)
        below = prune_point(known[-1].watermark, consumers, now_ms, self._expiry_ms, self._seeds.all())
        if below <= self._reader.state().oldest:
            return None
        self._requests.ask_prune(below)
        return below
