"""The write-ahead log of the replica file: kept from growing without end.

SQLite moves what is in it into the database by itself, but can begin it anew only when no reader needs any of it. A
reader that always holds a snapshot, as the view syncer does, is such a reader; once it has taken a new snapshot of a
database that is fully moved it needs none. So a large log is moved, readers are asked for a new snapshot, and the next
attempt truncates the file.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

LARGE_BYTES = 64 << 20


class Wal:
    """The log beside a replica."""

    def __init__(self, replica: Path, large: int = LARGE_BYTES) -> None:
        self._path = replica.with_name(replica.name + "-wal")
        self._large = large

    @property
    def size(self) -> int:
        """Bytes of the file."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def shrink(self, connection: sqlite3.Connection) -> bool:
        """Shrink the log if it is large; whether readers should take new snapshots so that the next call succeeds."""
        if self.size < self._large:
            return False
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        finally:
            connection.execute("PRAGMA busy_timeout = 60000")
