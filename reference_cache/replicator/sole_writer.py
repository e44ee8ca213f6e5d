"""One writer per replica: a lock on a file beside it, held as long as a replicator runs.

A cache that was killed leaves its replicator behind for the moment it takes to notice; the next one's must not write
before that is gone. The operating system lets go of the lock when its holder ends, however it ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

RETRY_SECONDS = 0.05


@asynccontextmanager
async def sole_writer(replica: Path, must_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock, after waiting for it if need be; `must_wait` is called once if so."""
    replica.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(replica.with_name(replica.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _locked(descriptor):
            must_wait()
            while not _locked(descriptor):  # noqa: ASYNC110 - nothing tells when another process lets go
                await asyncio.sleep(RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
