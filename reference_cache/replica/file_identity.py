"""Telling a file that is open from whatever is found under its name later."""

from __future__ import annotations

from pathlib import Path


def file_identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another of the same name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def remove_leftovers(path: Path) -> None:
    """Remove what SQLite kept beside a database that is gone: it would take the log for a new database's own."""
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
