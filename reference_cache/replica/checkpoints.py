"""Checkpoints a write-ahead log (WAL) in a background thread.

By default SQLite checkpoints as part of the commit that makes the WAL large, and the writer waits for the disk several
times. A thread with a connection of its own does the same without delaying the writer: a passive checkpoint takes no
lock that a writer or reader needs.

SQLite can restart the WAL once all of it is checkpointed. What is committed meanwhile is checkpointed in further
rounds, each of them shorter; if the last round does not catch up, the next checkpoint will.

Contract: the writer's connection makes no checkpoints itself (`leave_to_others`), and calls `after_commit`.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from service_kit.sqlite import connect

MIN_ROWS = 1_000
"""How many rows must change between two checkpoints."""

ROUNDS = 5

log = logging.getLogger(__name__)


def leave_to_others(connection: sqlite3.Connection) -> None:
    """Turn SQLite's automatic checkpoints off for a connection."""
    connection.execute("PRAGMA wal_autocheckpoint = 0")


class Checkpoints:
    """The checkpoints of one database. Invariant: at most one is running."""

    def __init__(self, path: Path, worth: int = MIN_ROWS) -> None:
        self._path = path
        self._worth = worth
        # `total_changes` of the writer's connection when the last checkpoint began; writer's thread.
        self._last_total = 0
        # The last checkpoint's thread; written in the writer's thread.
        self._thread: threading.Thread | None = None

    def after_commit(self, connection: sqlite3.Connection) -> None:
        """Start a checkpoint if enough was written since the last one began; does not wait for it."""
        written = connection.total_changes
        if written < self._last_total:  # the writer has opened a new connection
            self._last_total = 0
        if written - self._last_total < self._worth or self.is_under_way:
            return
        self._last_total = written
        self._thread = threading.Thread(target=self._move, name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Block until no checkpoint is running."""
        if self._thread is not None:
            self._thread.join()

    def _move(self) -> None:
        try:
            with closing(connect(self._path, mode="rw")) as connection:  # does not create a file
                for _ in range(ROUNDS):
                    _, logged, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    if moved >= logged:
                        break
        except sqlite3.Error as error:  # the next checkpoint does what this one did not
            log.warning("a checkpoint of %s failed: %s", self._path, error)
