"""A SQLite connection in a thread of its own, for callers on an event loop.

Work runs in order, so a rollback runs after a statement whose caller was cancelled.
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
"""How long a transaction waits for that of another process."""

T = TypeVar("T")


class SqliteThread:
    """One connection, opened at first use, and the only thread that uses it."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="app-server-sqlite")
        # Opened by `_work`, closed by `_close`; both run in the thread.
        self._connection: sqlite3.Connection | None = None

    async def __call__(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in the thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in the thread and block until it is done; for callers outside of an event loop."""
        return self._thread.submit(self._work, work).result()

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = connect(self._path, busy_seconds=BUSY_SECONDS, one_thread=True)
            self._connection.execute("PRAGMA foreign_keys = ON")
        return work(self._connection)

    def close(self) -> None:
        """Close the connection after the work that is queued; blocks."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
