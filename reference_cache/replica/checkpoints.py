"""Moving what is in a write-ahead log into its database, beside the writer.

SQLite does that by itself, as part of whichever commit makes the log large; it waits for the disk several times, and
the writer with it. A thread with a connection of its own does the same without holding anybody up: a passive checkpoint
takes no lock that a writer or reader needs.

The log can begin anew once all of it is moved. What is committed meanwhile is moved in further rounds, each of them
shorter; if even the last one does not catch up, the next checkpoint will.

Contract: the writer's connection does no checkpoints of its own (`leave_to_others`), and calls `after_commit`.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from service_kit.sqlite import connect

WORTH_MOVING = 1_000
"""Changed rows that make a checkpoint worth its while."""

ROUNDS = 5

log = logging.getLogger(__name__)


def leave_to_others(connection: sqlite3.Connection) -> None:
    """Make no checkpoints within commits."""
    connection.execute("PRAGMA wal_autocheckpoint = 0")


class Checkpoints:
    """The checkpoints of one database. Invariant: at most one is under way."""

    def __init__(self, path: Path, worth: int = WORTH_MOVING) -> None:
        self._path = path
        self._worth = worth
        self._seen = 0
        self._thread: threading.Thread | None = None

    def after_commit(self, connection: sqlite3.Connection) -> None:
        """Begin a checkpoint if enough was written since the last one began; returns at once."""
        written = connection.total_changes
        if written < self._seen:  # another connection than the last time
            self._seen = 0
        if written - self._seen < self._worth or self.is_under_way:
            return
        self._seen = written
        self._thread = threading.Thread(target=self._move, name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Until none is under way."""
        if self._thread is not None:
            self._thread.join()

    def _move(self) -> None:
        try:
            with closing(connect(self._path, mode="rw")) as connection:
                for _ in range(ROUNDS):
                    _, logged, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    if moved >= logged:
                        break
        except sqlite3.Error as error:  # the next one moves what this one did not
            log.warning("a checkpoint of %s failed: %s", self._path, error)
