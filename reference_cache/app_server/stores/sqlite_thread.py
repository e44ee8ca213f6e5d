"""A SQLite connection that lives in a thread of its own, for callers in an event loop.

What is asked for is done in order, so a rollback comes behind a statement that its caller no longer waits for.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import TypeVar

from service_kit.sqlite import connect

BUSY_SECONDS = 30.0
"""How long a transaction waits for another process's."""

T = TypeVar("T")


class SqliteThread:
    """One connection, opened when it is first needed, and the only thread that touches it."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="app-server-sqlite")
        self._connection: sqlite3.Connection | None = None

    async def __call__(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The same for callers outside of an event loop."""
        return self._thread.submit(self._work, work).result()

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = connect(self._path, busy_seconds=BUSY_SECONDS, one_thread=True)
            self._connection.execute("PRAGMA foreign_keys = ON")
        return work(self._connection)

    def close(self) -> None:
        """Let go of the connection; what is under way ends first."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
