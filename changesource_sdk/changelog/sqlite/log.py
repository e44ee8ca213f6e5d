"""The reading side of the SQLite log, and how to open either side.

Readers open the file read-only and may come before the writer: a log that does not exist yet is an empty one. When the
pipeline sets a damaged log aside and begins a new file, readers notice the change and follow it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

from changesource_sdk import positions
from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import LogState, Share, SnapshotRecord, Stored
from changesource_sdk.changelog.shares import cut
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.sqlite.connection import connect_reader, translated
from changesource_sdk.positions import Position
from protocol.watermark import EMPTY

_READ = """SELECT watermark, commit_time_ms, changes, size, frames, segment, segment_crc32
FROM transactions WHERE watermark > ? ORDER BY watermark"""
_STATE = """SELECT generation, epoch, head, oldest, position, schema,
  coalesce((SELECT max(id) FROM transactions) - (SELECT min(id) FROM transactions) + 1, 0)
FROM state, consumer_schema"""
# Ids have no gaps within a generation, so two look-ups count them.
_COUNT_AFTER = """SELECT coalesce((SELECT max(id) FROM transactions) + 1 -
  (SELECT id FROM transactions WHERE watermark > ? ORDER BY watermark LIMIT 1), 0)"""
_SNAPSHOTS = "SELECT watermark, generation, position, schema, directory, created_ms FROM snapshots ORDER BY watermark"


class SqliteLogReader:
    """A `LogReader` over one state directory. Each call is one short query under a lock, so threads may share it."""

    answers_at_once = True

    def __init__(self, state_directory: Path, spool: Path | None = None) -> None:
        self._layout = StateDirectory(state_directory, spool)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode = -1

    def state(self) -> LogState:
        """Where the log stands."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            return read_state(connection) if connection else LogState()

    def head(self) -> str:
        """The newest watermark."""
        return self._watermark("head")

    def oldest(self) -> str:
        """The lowest watermark to resume from."""
        return self._watermark("oldest")

    def read_after(self, watermark: str, max_bytes: int) -> list[Stored]:
        """Whole transactions above `watermark`: at least one if there is one, then up to `max_bytes`."""
        found: list[Stored] = []
        with self._lock, translated(self._layout.log):
            connection = self._current()
            if connection is None:
                return found
            cursor = connection.execute(_READ, (watermark,))
            for row in cursor:
                if found and max_bytes < row[3]:
                    break
                max_bytes -= row[3]
                found.append(self._stored(row))
            cursor.close()
        return found

    def has(self, watermark: str) -> bool:
        """Whether a transaction with exactly this watermark is in the log."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            query = "SELECT 1 FROM transactions WHERE watermark = ?"
            return connection is not None and connection.execute(query, (watermark,)).fetchone() is not None

    def count_after(self, watermark: str) -> int:
        """How many transactions there are above `watermark`."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            return int(connection.execute(_COUNT_AFTER, (watermark,)).fetchone()[0]) if connection else 0

    def knows(self, position: Position) -> bool:
        """Whether a transaction with this position is in the log."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            query, text = "SELECT 1 FROM transactions WHERE position = ?", positions.to_text(position)
            return connection is not None and connection.execute(query, (text,)).fetchone() is not None

    def shares(self, after: str, through: str, share_bytes: int) -> list[Share]:
        """The transactions above `after` up to `through`, cut into shares of about so many bytes."""
        query = "SELECT watermark, size FROM transactions WHERE watermark > ? AND watermark <= ? ORDER BY watermark"
        with self._lock, translated(self._layout.log):
            connection = self._current()
            return cut(after, connection.execute(query, (after, through)), share_bytes) if connection else []

    def snapshots(self) -> list[SnapshotRecord]:
        """The snapshots of the current generation."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            return read_snapshots(connection, self._layout) if connection else []

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _watermark(self, column: str) -> str:
        with self._lock, translated(self._layout.log):
            connection = self._current()
            row = connection.execute(f"SELECT {column} FROM state").fetchone() if connection else None
            return str(row[0]) if row else EMPTY

    def _current(self) -> sqlite3.Connection | None:
        """The connection to the file that is there now; None while there is none with tables."""
        inode = _inode(self._layout.log)
        if self._connection is not None and inode != self._inode:
            self._connection.close()
            self._connection = None
        if self._connection is None and inode is not None:
            connection = connect_reader(self._layout.log)
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'state'").fetchone():
                connection.close()
                return None
            self._connection, self._inode = connection, inode
        return self._connection

    def _stored(self, row: tuple[str, float | None, int, int, bytes | None, str | None, int | None]) -> Stored:
        watermark, time, changes, size, frames, segment, crc32 = row
        if segment is None:
            return Stored(watermark, time, changes, size, frames)
        begin, commit = begin_frame(watermark), commit_frame(watermark, time)
        data = BlockFile(self._layout.segments / segment, size - len(begin) - len(commit), crc32 or 0)
        return Stored(watermark, time, changes, size, None, begin, data, commit)


def _inode(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def read_state(connection: sqlite3.Connection) -> LogState:
    """The state row and what belongs to it, in one statement and so of one moment."""
    row = connection.execute(_STATE).fetchone()
    if row is None:
        return LogState()
    generation, epoch, head, oldest, position, schema, count = row
    return LogState(generation, epoch, head, oldest, positions.from_text(position), schema, count)


def read_snapshots(connection: sqlite3.Connection, layout: StateDirectory) -> list[SnapshotRecord]:
    """The registered snapshots, oldest first."""
    return [
        SnapshotRecord(watermark, generation, positions.from_text(position), schema, layout.spool / folder, created)
        for watermark, generation, position, schema, folder, created in connection.execute(_SNAPSHOTS)
    ]
