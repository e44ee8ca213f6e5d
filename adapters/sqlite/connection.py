"""Opening the database file: modes, time limits, and errors that say what to do.

Connections are in autocommit mode: all transactions are begun and ended with SQL statements. A connection may be used
in another thread than the one that opened it, by one thread at a time.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from changesource_sdk import AdapterError

BUSY_TIMEOUT_S = 10.0
LOCK_PAUSE_S = 0.0005
CACHE_KIB = 16 * 1024


def open_database(path: str, *, immutable: bool = False) -> sqlite3.Connection:
    """A connection to an existing database; `immutable` is for files that no process writes to."""
    if not Path(path).is_file():
        raise AdapterError(
            "database-not-found",
            f"there is no database file {path}",
            where=path,
            fix="check the setting `path`, or create the database first",
        )
    uri = f"{Path(path).resolve().as_uri()}?{'mode=ro&immutable=1' if immutable else 'mode=rw'}"
    with translated_errors(path):
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S)
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        # SQLite reads the file at the first query only: fail here if it is no database.
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return db


@contextmanager
def write_transaction(db: sqlite3.Connection, patience: float | None = None) -> Iterator[None]:
    """A transaction that has the write lock from its beginning.

    Waits up to `patience` seconds for the lock (None: `BUSY_TIMEOUT_S`), then raises `sqlite3.OperationalError`.
    """
    _take_write_lock(db, BUSY_TIMEOUT_S if patience is None else patience)
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.execute("COMMIT")


def _take_write_lock(db: sqlite3.Connection, patience: float) -> None:
    # SQLite's own busy handler sleeps longer and longer, so a writer with hardly any pause between its transactions
    # would always get the lock first. Try every LOCK_PAUSE_S instead.
    (usual,) = db.execute("PRAGMA busy_timeout").fetchone()
    deadline = time.monotonic() + patience
    db.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(LOCK_PAUSE_S)
    finally:
        db.execute(f"PRAGMA busy_timeout = {usual}")


@contextmanager
def opened(path: str) -> Iterator[sqlite3.Connection]:
    with translated_errors(path), closing(open_database(path)) as db:
        yield db


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    """Raise `sqlite3.Error` as an `AdapterError` with a stable code and a fix."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(path, error) from error


def _translated(path: str, error: sqlite3.Error) -> AdapterError:
    text = str(error)
    for part, code, fix in _CAUSES:
        if part in text:
            return AdapterError(code, f"SQLite says: {text}", where=path, fix=fix)
    return AdapterError(
        "sqlite-failed", f"SQLite says: {text}", where=path, fix="check the file with `PRAGMA integrity_check`"
    )


_CAUSES = (
    (
        "readonly",
        "database-read-only",
        "give this user write access to the file and its folder: triggers are kept in it",
    ),
    (
        "locked",
        "database-busy",
        "end the transaction that holds the write lock; `PRAGMA journal_mode=WAL` avoids most waits",
    ),
    ("not a database", "not-a-database", "check the setting `path`: the file is no SQLite database, or is encrypted"),
    (
        "malformed",
        "database-corrupt",
        "restore the file from a backup, or salvage it with the sqlite3 command `.recover`",
    ),
    ("full", "disk-full", "make room on the disk that holds the database"),
    ("decode to UTF-8", "text-not-utf8", "correct the text value that is not UTF-8, or exclude its table"),
    ("collation", "unknown-collation", "exclude the table: its collation exists only inside the application"),
)
