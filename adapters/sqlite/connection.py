"""Opening the database file: one place for its modes, time limits and the words of its failures.

Connections run in autocommit: every transaction in this package is begun and ended by name. They may be used from
another thread than the one that opened them, one thread at a time.
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
    """A connection to an existing database; `immutable` promises that nobody writes to the file."""
    if not Path(path).is_file():
        raise AdapterError(
            "database-not-found",
            f"there is no database file {path}",
            where=path,
            fix="check the setting `path`, or create the database first",
        )
    uri = f"{Path(path).resolve().as_uri()}?{'mode=ro&immutable=1' if immutable else 'mode=rw'}"
    with naming_the_cause(path):
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S)
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return db


@contextmanager
def write_transaction(db: sqlite3.Connection, patience: float | None = None) -> Iterator[None]:
    """All or nothing, and alone: the write lock is taken at once, within `patience` seconds."""
    _take_write_lock(db, BUSY_TIMEOUT_S if patience is None else patience)
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.execute("COMMIT")


def _take_write_lock(db: sqlite3.Connection, patience: float) -> None:
    """Ask often: SQLite's own waiting sleeps ever longer, and a writer that hardly pauses would always come first."""
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
    """A connection for the length of the block."""
    with naming_the_cause(path), closing(open_database(path)) as db:
        yield db


@contextmanager
def naming_the_cause(path: str) -> Iterator[None]:
    """Turn SQLite's failures into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explained(path, error) from error


def _explained(path: str, error: sqlite3.Error) -> AdapterError:
    text = str(error)
    for sign, code, fix in _SIGNS:
        if sign in text:
            return AdapterError(code, f"SQLite says: {text}", where=path, fix=fix)
    return AdapterError(
        "sqlite-failed", f"SQLite says: {text}", where=path, fix="check the file with `PRAGMA integrity_check`"
    )


_SIGNS = (
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
