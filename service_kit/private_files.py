"""Files and folders that only their owner can read: they hold the upstream's rows, and settings with passwords.

What an earlier version made with wider permissions is narrowed when it is next opened, if it is this user's. A folder
that existed before, such as one that hosts share, is the user's own business and keeps its mode.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def opener(path: str, flags: int) -> int:
    """For `open(…, opener=…)`: a file that is created is private."""
    return os.open(path, flags, FILE_MODE)


def private_file(path: Path) -> None:
    """Create an empty file if there is none, and make it private. Raises `OSError`.

    A file that exists is not opened: closing it would drop the locks that this process holds on it through SQLite.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    except FileExistsError:
        narrow(path, FILE_MODE)


def private_database(path: Path) -> None:
    """`private_file` before SQLite opens a file; SQLite gives its mode to the journal. Failures are left to SQLite."""
    with contextlib.suppress(OSError):
        private_file(path)


def new_folder(path: Path) -> None:
    """Make a private folder unless it exists; its parents are made as usual."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def own_folder(path: Path) -> None:
    """The same for a folder that belongs to us alone: one that exists is made private."""
    new_folder(path)
    narrow(path, FOLDER_MODE)


def narrow(path: Path, mode: int) -> None:
    """Take away permissions beyond `mode`, where this user may."""
    current = path.stat().st_mode & 0o777
    if current & ~mode:
        with contextlib.suppress(PermissionError):
            path.chmod(current & mode)
