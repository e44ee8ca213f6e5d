"""A lock on a file, for one process at a time.

The lock is the kernel's: it ends with the process, however that ends. The file may stay.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from service_kit.private_files import FILE_MODE


class FileLock:
    """An open lock file, private to this user. Closing it releases the lock."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError` if the file cannot be opened or created."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)

    def acquire(self) -> bool:
        """Take the lock without waiting; whether this process has it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def sign(self) -> None:
        """Write our process id into the file. Raises `OSError`, for example on a full disk."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def holder(self) -> str:
        """The process id that the holder wrote, or `unknown`."""
        return os.pread(self._descriptor, 100, 0).decode().strip() or "unknown"

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)
