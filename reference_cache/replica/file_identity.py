"""Detects that an open file was deleted or replaced."""

from __future__ import annotations

from pathlib import Path


def file_identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at a path; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def remove_leftovers(path: Path) -> None:
    """Remove the WAL and journal of a deleted database: SQLite would apply them to a new file of the same name."""
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
