"""A database connection in a thread of its own, for callers on an event loop and drivers that block.

Work runs in order, so a rollback runs after a statement whose caller was cancelled.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from typing import Generic, Protocol, TypeVar

from service_kit.sqlite import connect

BUSY_SECONDS = 30.0
"""How long a SQLite transaction waits for that of another process."""

T = TypeVar("T")


class Closable(Protocol):
    """A connection, as far as its thread needs to know it."""

    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=Closable)


class ConnectionThread(Generic[Connection]):
    """One connection, opened at first use by `open`, and the only thread that uses it."""

    def __init__(self, open: Callable[[], Connection], name: str) -> None:
        self._open = open
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        # Opened by `_work`, closed by `_close`; both run in the thread.
        self._connection: Connection | None = None

    async def __call__(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the thread and return its result. Raises what it raises, or what opening raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def now(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the thread and block until it is done; for callers outside of an event loop."""
        return self._thread.submit(self._work, work).result()

    def _work(self, work: Callable[[Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._open()
        return work(self._connection)

    def close(self) -> None:
        """Close the connection after the work that is queued; blocks."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def sqlite_thread(path: str | PathLike[str]) -> ConnectionThread[sqlite3.Connection]:
    """The thread of a SQLite file."""
    return ConnectionThread(partial(_open_sqlite, path), "app-server-sqlite")


def _open_sqlite(path: str | PathLike[str]) -> sqlite3.Connection:
    connection = connect(path, busy_seconds=BUSY_SECONDS, one_thread=True)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection
