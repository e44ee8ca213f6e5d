"""One writer per replica: a lock on a file next to it, held as long as a replicator runs.

A cache that was killed leaves its replicator running for the moment it takes to notice; the replicator of the next
cache must not write before that one has exited. The lock ends with its holder (`service_kit.file_lock`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from service_kit.file_lock import FileLock

RETRY_SECONDS = 0.05


@asynccontextmanager
async def sole_writer(replica: Path, must_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock, after waiting for it if need be; `must_wait` is called once if so."""
    replica.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(replica.with_name(replica.name + ".lock")) as lock:
        if not lock.acquire():
            must_wait()
            while not lock.acquire():  # noqa: ASYNC110 - the kernel does not announce that a lock is free
                await asyncio.sleep(RETRY_SECONDS)
        yield
