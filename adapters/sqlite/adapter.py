"""Any SQLite database file behind Zero.

`settings` explains the settings. The adapter adds triggers and two small tables to the database (`capture`) and never
writes to the user's tables.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from adapters.sqlite.capture import install, prune, recorded_range, uninstall
from adapters.sqlite.checks import examine
from adapters.sqlite.connection import open_database, opened, translated_errors
from adapters.sqlite.position import SqlitePosition
from adapters.sqlite.settings import SHORTEST_PAUSE_S, longest_pause, selection
from adapters.sqlite.snapshot import take_snapshot
from adapters.sqlite.tail import SqliteTail
from adapters.sqlite.watch import FileWatch
from changesource_sdk import Check, Position, Snapshot, Table, Transaction

PAUSE_GROWTH = 1.25

# Every pruning takes the database's write lock, so recorded keys are not pruned at each acknowledgement: only after so
# many keys or seconds. The wait for the lock is short, since `acknowledge` runs in the thread that appends to the log.
ACKNOWLEDGE_KEYS = 1_000
ACKNOWLEDGE_AFTER_S = 2.0
ACKNOWLEDGE_PATIENCE_S = 0.05


class SqliteAdapter:
    """Reads one database file. Picklable: each call opens its own connection."""

    poll_interval = 0.0  # `changes` waits for commits itself

    def __init__(
        self,
        path: str,
        tables: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        poll: float | str = 0.01,
        dates: str = "text",
        exact_replace: bool | str = False,
        scratch: str | None = None,
    ) -> None:
        self._path = str(path)
        self._selection = selection(tables, exclude, dates, exact_replace)
        self._longest_pause = longest_pause(poll)
        self._scratch = scratch
        self._initialise_state()

    def _initialise_state(self) -> None:
        # Set by `close`, in any thread; ends `changes`.
        self._closed = threading.Event()
        # The three below are written by `acknowledge` only, which one thread calls.
        self._pruned = 0  # recorded keys before this number are deleted
        self._is_postponed = False  # the last pruning met a busy database: wait ACKNOWLEDGE_AFTER_S for the next
        self._tried_at = float("-inf")  # monotonic seconds of the last pruning, successful or not

    def __getstate__(self) -> dict[str, Any]:
        settings = ("_path", "_selection", "_longest_pause", "_scratch")
        return {name: getattr(self, name) for name in settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._initialise_state()

    def tables(self) -> Sequence[Table]:
        """The synced tables in their current form. Installs the capture."""
        with opened(self._path) as db:
            return [table.declared() for table in install(db, self._selection).catalog.tables]

    def snapshot(self) -> Snapshot:
        """The current state, in a private copy of the file that exists until the snapshot is closed."""
        with opened(self._path) as db:
            return take_snapshot(db, self._path, self._selection, self._scratch)

    def changes(self, after: Position) -> Generator[Transaction, None, None]:
        """Commits after a position, as they happen, until the adapter is closed or another file is in its place.

        An open connection keeps reading a file that was renamed or deleted. The next call opens the new file, and finds
        out whether the position is one of it.
        """
        file = _file_id(self._path)
        with closing(open_database(self._path)) as db, closing(FileWatch(self._path, self._closed)) as watch:
            tail = SqliteTail(db, self._path, self._selection, after)
            pause, seen = SHORTEST_PAUSE_S, -1
            while not self._closed.is_set() and _file_id(self._path) == file:
                # Read before the batch: a commit in between makes one poll too many, never one too few.
                version = self._data_version(db)
                batch = tail.next_batch() if version != seen else None
                seen = version
                if batch is not None:
                    yield batch
                    # Poll again without waiting: more may have been committed while the consumer had the batch.
                    pause, seen = SHORTEST_PAUSE_S, -1
                    continue
                pause = self._next_pause(pause, watch.wait(pause))

    def _next_pause(self, pause: float, is_written: bool) -> float:
        """Seconds until the next poll: ever longer while nothing is written to the file."""
        if not is_written:
            return min(pause * PAUSE_GROWTH, self._longest_pause)
        if pause <= SHORTEST_PAUSE_S:
            # A long transaction writes page after page, and each write ends the wait: do not poll at every page.
            self._closed.wait(SHORTEST_PAUSE_S)
        return SHORTEST_PAUSE_S

    def _data_version(self, db: sqlite3.Connection) -> int:
        """A number that changes when another connection has committed."""
        with translated_errors(self._path):
            return int(db.execute("PRAGMA data_version").fetchone()[0])

    def acknowledge(self, position: Position) -> None:
        """Delete recorded keys up to a position, in bulk (`ACKNOWLEDGE_KEYS`), and later if the database is busy."""
        acknowledged, waited = SqlitePosition.from_json(position), time.monotonic() - self._tried_at
        are_many = acknowledged.sequence - self._pruned >= ACKNOWLEDGE_KEYS
        if not (waited > ACKNOWLEDGE_AFTER_S or (are_many and not self._is_postponed)):
            return
        self._is_postponed, self._tried_at = True, time.monotonic()
        with contextlib.suppress(sqlite3.OperationalError), closing(open_database(self._path)) as db:
            prune(db, acknowledged.sequence, acknowledged.version, ACKNOWLEDGE_PATIENCE_S)
            self._pruned, self._is_postponed = acknowledged.sequence, False

    def head(self) -> Position:
        """The number of the last recorded key."""
        with opened(self._path) as db:
            return recorded_range(db)[1]

    def distance(self, position: Position, head: Position) -> int | None:
        """How many recorded keys are after a position. Recorded keys that were read are deleted, so 0 means none."""
        return max(0, head - SqlitePosition.from_json(position).sequence) if type(head) is int else None

    def close(self) -> None:
        """Make `changes` return."""
        self._closed.set()

    def examine(self) -> Sequence[Check]:
        """The checks of `changesource doctor`. Only reads the database."""
        with opened(self._path) as db:
            return list(examine(db, self._path, self._selection))

    def uninstall(self) -> None:
        """Remove triggers and tables from the database; positions are invalid afterwards."""
        with opened(self._path) as db:
            uninstall(db)


def _file_id(path: str) -> tuple[int, int] | None:
    """Identifies the file that has this name now; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
