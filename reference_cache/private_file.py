"""Databases that only their owner can read: they hold the rows that clients may not all see."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MODE = 0o600


def private_file(path: Path) -> None:
    """Create an empty file if there is none, and make it private; SQLite gives its mode to its journal and index.

    One that an earlier version made for everybody to read is narrowed, where this user may; it is not opened, since
    closing it would drop the locks that this process holds on it through SQLite. What goes wrong is left for SQLite
    to say.
    """
    with contextlib.suppress(OSError):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, MODE))
        except FileExistsError:
            path.chmod(path.stat().st_mode & MODE)
