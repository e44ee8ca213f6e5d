"""Opening SQLite files, and names in SQL text.

Connections are in autocommit: every transaction is begun and ended by name.
"""

from __future__ import annotations

import sqlite3
from os import PathLike
from pathlib import Path
from typing import Literal


def connect(
    path: str | PathLike[str],
    *,
    mode: Literal["ro", "rw"] | None = None,
    busy_seconds: float = 5.0,
    cached_statements: int = 128,
    one_thread: bool = False,
) -> sqlite3.Connection:
    """Open a database. Raises `sqlite3.Error`.

    `mode` is for a file that must exist; without one, a missing file is created. Statements wait `busy_seconds` for
    another connection's lock. The connection may be used by any thread, one at a time, unless it is for `one_thread`.
    """
    return sqlite3.connect(
        path if mode is None else f"{Path(path).absolute().as_uri()}?mode={mode}",
        uri=mode is not None,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=one_thread,
        cached_statements=cached_statements,
    )


def use_wal(connection: sqlite3.Connection, synchronous: Literal["FULL", "NORMAL"]) -> None:
    """Let others read while one writes. `FULL`: a commit is durable when it returns; `NORMAL`: after a checkpoint."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")


def quoted(name: str) -> str:
    """An identifier as standard SQL text, whatever characters it has; Postgres takes the same."""
    return '"' + name.replace('"', '""') + '"'
