"""The file of client view records: its tables, its transactions, and the version of the data it belongs to.

Two halves. Rows are recorded per distinct query, for all groups that run it (`cvr.records`); groups record what they
want and since when they have which query (`cvr.groups`). A transaction that records anything also records the version
of the data it was made at, so a cookie is valid exactly if the file knows its version.

The file is in WAL mode with `synchronous=NORMAL`: what is committed survives the death of the process. After a power
failure the last commits may be missing; a client that is ahead is then told to start over. Commits do not wait for the
disk: the log is moved into the database by a thread.
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
"""Bytes of the disk that records for clients do not use: the replica, and what commits change, need them."""

MEMORY_LIMIT = 256 << 20
"""How large the records may become while they are kept in memory."""

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
"""A table of its own, so that files of the version before it, which has none, are opened as they are."""

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
    """The open file. Invariant: outside `transaction` nothing is pending, so a crash loses nothing that was told.

    `data_version` is the newest version of the data that anything in the file was recorded at.
    """

    def __init__(self, path: Path, limit: int = 8 << 30) -> None:
        self._path = path
        self._limit = limit
        self.has_room = True  # whether more may be recorded for clients; as of the last `measure`
        self.is_in_memory = False  # whether the disk was given up, until the process ends
        self._open()

    def renew(self) -> None:
        """Begin a new file if the one that is open was deleted."""
        if not self.is_in_memory and file_identity(self._path) != self._identity:
            self.close()
            if not self._path.exists():
                remove_leftovers(self._path)
            self._open()

    def leave_disk(self) -> None:
        """Keep the records in memory until the process ends, because the disk is full. Every client starts over.

        The file is removed, not only left alone: a later process would take cookies that were given out meanwhile for
        cookies of its own, and miss what they stand for.
        """
        self.close()
        self._path.unlink(missing_ok=True)
        remove_leftovers(self._path)
        self.is_in_memory = True
        self._open()

    def _open(self) -> None:
        path = self._path
        self._checkpoints: Checkpoints | None = None  # None while the records are in memory
        self._wal: Wal | None = None  # likewise
        if self.is_in_memory:
            self.connection = connect(":memory:", cached_statements=256, one_thread=True)
        else:
            private_database(path)
            self.connection = connect(path, cached_statements=256, one_thread=True)
            use_wal(self.connection, "NORMAL")
            leave_to_others(self.connection)  # the event loop would wait for the disk
            self._checkpoints = Checkpoints(path)
            self._wal = Wal(path)
            self._identity = file_identity(path)  # of the file that is open
        self.connection.execute("PRAGMA cache_size = -32768")
        found = self._stored_state()
        if found is None:
            self._create()
            found = FORMAT, "", ""
        self.replica_version: str = found[1]
        self.data_version: str = found[2]
        with self.transaction():
            self.connection.execute(_OWNERS)
            # Queries that ran when the process ended were right up to the last version recorded.
            self.connection.execute("UPDATE queries SET settled = ? WHERE settled IS NULL", (self.data_version,))

    def _stored_state(self) -> tuple[int, str, str] | None:
        try:
            found: tuple[int, str, str] | None = self.connection.execute("SELECT * FROM state").fetchone()
        except sqlite3.OperationalError:
            return None
        return found if found is not None and found[0] == FORMAT else None

    def _create(self) -> None:
        """Begin with nothing: clients of an earlier file will start over."""
        with self.transaction():
            for table in _ALL:
                self.connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _TABLES.split(";"):
                self.connection.execute(statement)
            self.connection.execute(_OWNERS)
            self.connection.execute("INSERT INTO state VALUES (?, '', '')", (FORMAT,))

    def start_over(self, replica_version: str) -> None:
        """Forget everybody: the data stems from another initial sync, to which no cookie refers."""
        self._create()
        self.connection.execute("UPDATE state SET replica_version = ?", (replica_version,))
        self.replica_version, self.data_version = replica_version, ""

    @contextmanager
    def transaction(self, data_version: str | None = None) -> Iterator[sqlite3.Connection]:
        """All or nothing. `data_version` is the version of the data that is being recorded, if any is."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            if data_version is not None and data_version > self.data_version:
                self.connection.execute("UPDATE state SET data_version = ?", (data_version,))
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:  # SQLite has rolled back by itself where the disk is full
                self.connection.execute("ROLLBACK")
            raise
        if self._checkpoints is not None:
            self._checkpoints.after_commit(self.connection)
        if data_version is not None and data_version > self.data_version:
            self.data_version = data_version

    def measure(self) -> bool:
        """Find out whether there is room for more: within the limit, and on the disk."""
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
        """Cut the write-ahead log back, if it could not begin anew for so long that it grew large."""
        if self._wal is not None:
            self._wal.shrink(self.connection)

    def release_memory(self) -> None:
        """Drop the pages that SQLite keeps in memory; what is used again is read from the system's cache."""
        self.connection.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.wait()
        self.connection.close()


def is_full(error: Exception) -> bool:
    """Whether SQLite says that there is no room on the disk."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL
