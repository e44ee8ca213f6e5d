"""The log's SQLite file: its tables, how it is opened, and what its failures mean.

WAL mode lets readers in other processes read while the writer commits; `synchronous=FULL` makes a commit durable
when it returns. Errors of SQLite become `StateError`s here, and only here. A full disk, a read-only directory and a
damaged file each have a subclass, because callers recover from them in different ways.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from changesource_sdk.changelog.files.disk import disk_full
from changesource_sdk.errors import CorruptLog, ReadOnlyState, StateError
from service_kit.errors import translated_errors
from service_kit.private_files import private_database
from service_kit.sqlite import connect, use_wal

FORMAT = 1
SHARED_FORMAT = 2
"""That of a log that named sources share: earlier releases would take it for a log without positions."""
CHECK_WHOLE_FILE_BELOW = 256 * 1024 * 1024
"""Logs up to this size are checked page by page when a writer opens them; larger ones as they are read."""

_BUSY_TIMEOUT_S = 30.0

TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  format INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  head TEXT NOT NULL,
  oldest TEXT NOT NULL,
  highest TEXT NOT NULL,
  position TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS consumer_schema (id INTEGER PRIMARY KEY CHECK (id = 1), schema TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS snapshots (
  watermark TEXT PRIMARY KEY,
  generation INTEGER NOT NULL,
  position TEXT NOT NULL,
  schema TEXT NOT NULL,
  directory TEXT NOT NULL,
  created_ms REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS transactions (
  id INTEGER PRIMARY KEY,
  watermark TEXT NOT NULL UNIQUE,
  position TEXT NOT NULL UNIQUE,
  commit_time_ms REAL,
  changes INTEGER NOT NULL,
  size INTEGER NOT NULL,
  frames BLOB,
  segment TEXT,
  segment_crc32 INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS dead_letters (
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  table_name TEXT NOT NULL,
  row_key TEXT NOT NULL,
  outcome TEXT NOT NULL,
  letter TEXT NOT NULL,
  UNIQUE (source, table_name, row_key)
) STRICT;
CREATE TABLE IF NOT EXISTS skips (id INTEGER PRIMARY KEY, source TEXT NOT NULL, skip TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS sources (
  name TEXT PRIMARY KEY,
  epoch INTEGER NOT NULL,
  position TEXT,
  schema TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  reads INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO state VALUES (1, 1, 0, 0, '00', '00', '00', 'null');
INSERT OR IGNORE INTO consumer_schema VALUES (1, '');
COMMIT;
"""


def translated(path: Path) -> AbstractContextManager[None]:
    """Raise a `StateError` with a fix for an error of SQLite inside the block."""
    return translated_errors(sqlite3.Error, lambda error: _our_error(error, path))


def _our_error(error: sqlite3.Error, path: Path) -> StateError:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match primary:
        case sqlite3.SQLITE_FULL:
            return disk_full(path)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_FORMAT:
            return corrupt(path, str(error))
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return ReadOnlyState(
                "log-not-writable",
                f"the change log cannot be opened or written: {error}",
                where=str(path),
                fix="give this user write permission on the state directory, or choose another with --state",
            )
    return StateError(
        "log-failed",
        f"the change log failed: {error}",
        where=str(path),
        fix="check the disk and that the state directory is on a local file system",
    )


def corrupt(path: Path, reason: str) -> CorruptLog:
    """Return the error for a damaged log."""
    return CorruptLog(
        "log-corrupt",
        f"the change log is damaged: {reason}",
        where=str(path),
        fix="nothing to do: it is set aside and consumers are reset to a new snapshot; check the disk",
    )


def connect_writer(path: Path, *, check_pages: bool = True) -> sqlite3.Connection:
    """The log opened for writing, created if absent, its pages checked unless another writer has just done it."""
    _check_first_page(path)
    with translated(path):
        private_database(path)
        connection = connect(path, busy_seconds=_BUSY_TIMEOUT_S)
        try:
            use_wal(connection, "FULL")
            connection.executescript(TABLES)
            _check(connection, path, check_pages)
        except BaseException:
            connection.close()
            raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open an existing log for reading. The mode is `rw`: SQLite may have to recover the WAL of a killed writer."""
    with translated(path):
        connection = connect(path, mode="rw", busy_seconds=_BUSY_TIMEOUT_S)
        connection.execute("PRAGMA query_only=ON")
        return connection


def _check_first_page(path: Path) -> None:
    """Raise `CorruptLog` for a file that ends within its first page: SQLite takes it for empty and overwrites it."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        header = file.read(18)
    page_size = int.from_bytes(header[16:18], "big")
    if not header.startswith(b"SQLite format 3\0") or path.stat().st_size < (page_size if page_size > 1 else 65536):
        raise corrupt(path, "its first page is not that of a database")


def _check(connection: sqlite3.Connection, path: Path, check_pages: bool) -> None:
    row = connection.execute("SELECT format FROM state").fetchone()
    if row not in ((FORMAT,), (SHARED_FORMAT,)):
        raise StateError(
            "log-format",
            f"the change log has format {row and row[0]}, this release reads up to {SHARED_FORMAT}",
            where=str(path),
            fix="use the release that wrote it, or another state directory",
        )
    if check_pages and path.stat().st_size <= CHECK_WHOLE_FILE_BELOW:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise corrupt(path, verdict)


def set_aside(path: Path) -> Path:
    """Rename a damaged log and its WAL; returns the new path of the log."""
    number = 1
    while (target := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    for suffix in ("-shm", "-wal", ""):
        source = path.with_name(path.name + suffix)
        if source.exists():
            source.rename(target.with_name(target.name + suffix))
    return target
