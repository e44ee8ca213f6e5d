"""Notices writes to the database file, so that a commit is read at once and an idle database costs nothing.

On Linux, inotify reports writes to the database, its WAL and its journal. A report comes a little before the commit is
visible, may belong to a transaction that is rolled back, and never comes from other hosts of a network file system. So
it only shortens the pause between two polls. Without inotify the adapter polls only.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

_MODIFY, _DELETE = 0x00000002, 0x00000200
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
_NOTICE_CLOSE_S = 0.1


class FileWatch:
    """Waits for writes to one database file. `wait` also returns soon after `closed` is set."""

    def __init__(self, path: str, closed: threading.Event) -> None:
        self._closed = closed
        database = Path(path).resolve()
        self._names = {os.fsencode(database.name + suffix) for suffix in ("", "-wal", "-journal")}
        # Watches the folder, not the files: the journal is created and deleted all the time. None without inotify, and
        # after `close`.
        self._descriptor = _watch_folder(database.parent)

    def wait(self, seconds: float) -> bool:
        """Wait until the database is written to, at most so many seconds; returns whether it was."""
        if self._descriptor is None:
            self._closed.wait(seconds)
            return False
        if not select.select([self._descriptor], [], [], min(seconds, _NOTICE_CLOSE_S))[0]:
            return False
        content = os.read(self._descriptor, _READ_BYTES)
        return any(name in self._names for name in _names(content))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _watch_folder(folder: Path) -> int | None:
    """An inotify descriptor for writes to files in a folder; None where there is no inotify or no watch is left."""
    try:
        libc = ctypes.CDLL(None)
        descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError, TypeError):
        return None
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(folder), _MODIFY | _DELETE) < 0:
        os.close(descriptor)
        return None
    return descriptor


def _names(content: bytes) -> Iterator[bytes]:
    """The file names in a series of inotify events."""
    at = 0
    while at < len(content):
        *_, length = _EVENT.unpack_from(content, at)
        at += _EVENT.size
        yield content[at : at + length].rstrip(b"\0")
        at += length
