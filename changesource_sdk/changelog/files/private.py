"""Files and folders that only their owner can read: they hold the upstream's rows, and settings with passwords.

What an earlier version made with wider permissions is narrowed when it is next opened, if it is this user's. A folder
that was there before, such as one that hosts share, is the user's own business and left as it is.
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
    """Create an empty file if there is none, and make it private: for SQLite, whose own files take its mode.

    A file that is there is not opened: closing it would drop the locks that this process holds on it through SQLite.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    except FileExistsError:
        narrow(path, FILE_MODE)


def new_folder(path: Path) -> None:
    """Make a private folder unless it is there; its parents are made as usual."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def own_folder(path: Path) -> None:
    """The same for a folder that is nobody else's: one that is there is made private."""
    new_folder(path)
    narrow(path, FOLDER_MODE)


def narrow(path: Path, mode: int) -> None:
    """Take away permissions beyond `mode`, where this user may."""
    found = path.stat().st_mode & 0o777
    if found & ~mode:
        with contextlib.suppress(PermissionError):
            path.chmod(found & mode)
