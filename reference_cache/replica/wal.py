"""Keeps SQLite's write-ahead log (WAL) from growing without limit.

A checkpoint copies the WAL into the database, but SQLite can restart the WAL only when no reader needs any of it. The
view syncer always holds a snapshot, so it always needs it, until it takes a new snapshot of a fully checkpointed
database. So a large WAL is checkpointed, readers take a new snapshot, and the next attempt truncates the file.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

LARGE_BYTES = 64 << 20
"""A smaller WAL is left alone."""


class Wal:
    """The WAL file of one database."""

    def __init__(self, replica: Path, large: int = LARGE_BYTES) -> None:
        self._path = replica.with_name(replica.name + "-wal")
        self._large = large

    @property
    def size(self) -> int:
        """Size in bytes; 0 if there is no file."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def shrink(self, connection: sqlite3.Connection) -> bool:
        """Truncate the WAL if it is large; returns True if readers must take new snapshots before that can succeed."""
        if self.size < self._large:
            return False
        # Do not wait for readers: this connection is the writer's.
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        finally:
            connection.execute("PRAGMA busy_timeout = 60000")
