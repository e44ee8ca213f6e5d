"""The CVR file (client view records): its tables, its transactions, and the version of the data it belongs to.

It has two halves. Rows are recorded per distinct query, for all groups that run it (`cvr.records`); groups record their
desired and got queries (`cvr.groups`). A transaction that records anything also records the version of the data it was
made at, so a cookie is valid exactly if the file knows its version.

The file is in WAL mode with `synchronous=NORMAL`: what is committed survives a crash of the process. After a power
failure the last commits may be missing; a client that is ahead must then start over. Commits do not wait for the disk:
a thread moves the write-ahead log into the database.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reference_cache.replica.checkpoints import Checkpoints, leave_to_others
from reference_cache.replica.file_identity import file_identity, remove_leftovers
from reference_cache.replica.wal import Wal
from service_kit.private_files import private_database
from service_kit.sqlite import connect, use_wal

FORMAT = 1
KEPT_FREE = 64 << 20
"""Bytes of the disk that must stay free for the replica, and for the records of rows that commits change."""

MEMORY_LIMIT = 256 << 20
"""How many bytes the records may take while they are kept in memory."""

_TABLES = """
CREATE TABLE state (format INTEGER, replica_version TEXT, data_version TEXT);
CREATE TABLE ages (time REAL, version TEXT);
CREATE TABLE queries (
  id INTEGER PRIMARY KEY, key TEXT UNIQUE, epoch INTEGER, settled TEXT, last_patch TEXT, forgotten TEXT
);
CREATE TABLE records (
  query INTEGER, row_table TEXT, row_key TEXT, row_version TEXT, patch_version TEXT, there INTEGER,
  PRIMARY KEY (query, row_table, row_key)
) WITHOUT ROWID;
CREATE INDEX records_by_patch ON records (query, patch_version);
CREATE INDEX records_gone ON records (query, patch_version) WHERE NOT there;
CREATE TABLE groups (
  id TEXT PRIMARY KEY, version TEXT, user_id TEXT, client_schema TEXT, ttl_clock REAL, last_active REAL,
  forgotten TEXT
) WITHOUT ROWID;
CREATE TABLE clients (group_id TEXT, client_id TEXT, PRIMARY KEY (group_id, client_id)) WITHOUT ROWID;
CREATE TABLE group_queries (
  group_id TEXT, hash TEXT, definition TEXT, version TEXT, got INTEGER, deleted INTEGER, PRIMARY KEY (group_id, hash)
) WITHOUT ROWID;
CREATE TABLE desires (
  group_id TEXT, hash TEXT, client_id TEXT, ttl REAL, version TEXT, inactivated_at REAL,
  PRIMARY KEY (group_id, hash, client_id)
) WITHOUT ROWID;
CREATE TABLE memberships (
  group_id TEXT, query INTEGER, since TEXT, got TEXT, removed TEXT, epoch INTEGER, PRIMARY KEY (group_id, query)
) WITHOUT ROWID;
CREATE INDEX memberships_by_query ON memberships (query);
CREATE TABLE dropped_results (
  group_id TEXT, client_id TEXT, mutation_id INTEGER, version TEXT, PRIMARY KEY (group_id, client_id, mutation_id)
) WITHOUT ROWID;
"""

_OWNERS = """
CREATE TABLE IF NOT EXISTS group_owners (group_id TEXT PRIMARY KEY, verified INTEGER, salt BLOB, digests TEXT)
WITHOUT ROWID
"""
"""A table of its own, so that files of earlier versions, which do not have it, can still be opened."""

_ALL = (
    "state",
    "ages",
    "queries",
    "records",
    "groups",
    "clients",
    "group_queries",
    "desires",
    "memberships",
    "dropped_results",
    "group_owners",
)


class CvrFile:
    """The open file. Invariant: outside `transaction` nothing is pending, so a crash loses nothing that was sent.

    Used on the event loop only. `limit` is the largest size in bytes.
    """

    def __init__(self, path: Path, limit: int = 8 << 30) -> None:
        self._path = path
        self._limit = limit
        # Whether new groups and queries may be recorded; written by `measure`.
        self.has_room = True
        # Whether the disk was given up, until the process ends; written by `leave_disk`.
        self.is_in_memory = False
        # The initial sync that the records belong to; written by `_open` and `start_over`.
        self.replica_version = ""
        # The newest version of the data that anything was recorded at; written by `_open` and `transaction`.
        self.data_version = ""
        # The four below belong to the open file and are replaced by `_open`.
        self.connection: sqlite3.Connection
        # Device and inode, to notice that the file was deleted; None while in memory.
        self._identity: tuple[int, int] | None = None
        # None while in memory.
        self._checkpoints: Checkpoints | None = None
        # None while in memory.
        self._wal: Wal | None = None
        self._open()

    def renew(self) -> None:
        """Create a new file if the one that is open was deleted."""
        if not self.is_in_memory and file_identity(self._path) != self._identity:
            self.close()
            if not self._path.exists():
                remove_leftovers(self._path)
            self._open()

    def leave_disk(self) -> None:
        """Keep the records in memory until the process ends, because the disk is full. All clients start over.

        The file is deleted, because a later process would accept cookies that were issued meanwhile as cookies of the
        file, although it lacks what was sent with them.
        """
        self.close()
        self._path.unlink(missing_ok=True)
        remove_leftovers(self._path)
        self.is_in_memory = True
        self._open()

    def _open(self) -> None:
        path = self._path
        self._checkpoints = self._wal = None
        if self.is_in_memory:
            self.connection = connect(":memory:", cached_statements=256, one_thread=True)
        else:
            private_database(path)
            self.connection = connect(path, cached_statements=256, one_thread=True)
            use_wal(self.connection, "NORMAL")
            leave_to_others(self.connection)  # the event loop would wait for the disk
            self._checkpoints = Checkpoints(path)
            self._wal = Wal(path)
            self._identity = file_identity(path)
        self.connection.execute("PRAGMA cache_size = -32768")
        state = self._stored_state()
        if state is None:
            self._create()
            state = FORMAT, "", ""
        _, self.replica_version, self.data_version = state
        with self.transaction():
            self.connection.execute(_OWNERS)
            # The records of queries that ran when the process ended are right up to the last recorded version.
            self.connection.execute("UPDATE queries SET settled = ? WHERE settled IS NULL", (self.data_version,))

    def _stored_state(self) -> tuple[int, str, str] | None:
        """Format, replica version and data version; None for an empty file or another format."""
        try:
            state: tuple[int, str, str] | None = self.connection.execute("SELECT * FROM state").fetchone()
        except sqlite3.OperationalError:
            return None
        return state if state is not None and state[0] == FORMAT else None

    def _create(self) -> None:
        """Drop all records and create empty tables; clients of an earlier file start over."""
        with self.transaction():
            for table in _ALL:
                self.connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _TABLES.split(";"):
                self.connection.execute(statement)
            self.connection.execute(_OWNERS)
            self.connection.execute("INSERT INTO state VALUES (?, '', '')", (FORMAT,))

    def start_over(self, replica_version: str) -> None:
        """Drop all records: the replica is from another initial sync, to which no cookie belongs."""
        self._create()
        self.connection.execute("UPDATE state SET replica_version = ?", (replica_version,))
        self.replica_version, self.data_version = replica_version, ""

    @contextmanager
    def transaction(self, data_version: str | None = None) -> Iterator[sqlite3.Connection]:
        """A SQLite transaction: all or nothing. `data_version` is the version of the data that is recorded, if any."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            if data_version is not None and data_version > self.data_version:
                self.connection.execute("UPDATE state SET data_version = ?", (data_version,))
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:  # SQLite rolls back on its own when the disk is full
                self.connection.execute("ROLLBACK")
            raise
        if self._checkpoints is not None:
            self._checkpoints.after_commit(self.connection)
        if data_version is not None and data_version > self.data_version:
            self.data_version = data_version

    def measure(self) -> bool:
        """Update `has_room`: whether the file is within its limit, and enough of the disk is free."""
        pages, free, size = (
            self.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        used = (pages - free) * size
        if self._wal is None:
            self.has_room = used <= min(self._limit, MEMORY_LIMIT)
        else:
            disk = shutil.disk_usage(self._path.absolute().parent)
            self.has_room = used + self._wal.size <= self._limit and disk.free >= KEPT_FREE
        return self.has_room

    def tidy(self) -> None:
        """Truncate the write-ahead log if it has grown large because it could not be restarted."""
        if self._wal is not None:
            self._wal.shrink(self.connection)

    def release_memory(self) -> None:
        """Drop SQLite's page cache; pages that are used again come from the system's cache."""
        self.connection.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.wait()
        self.connection.close()


def is_full(error: Exception) -> bool:
    """Whether SQLite says that there is no room on the disk."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL
