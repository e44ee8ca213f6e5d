"""Hearing that a database file was written to, so that a commit is seen at once and an idle store costs nothing.

On Linux the kernel tells of writes to the database, its WAL and its journal (inotify). What it tells comes a little
before the commit is visible, may be of a transaction that is rolled back, and does not come from other hosts of a
network file system. So a stir is a reason to look, never the only one: the adapter looks by itself as well, and where
the system has no inotify that is all it does.
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


class Watch:
    """Waits for writes to one database. Invariant: `wait` returns within the time given, and soon after `closed`."""

    def __init__(self, path: str, closed: threading.Event) -> None:
        self._closed = closed
        database = Path(path).resolve()
        self._names = {os.fsencode(database.name + suffix) for suffix in ("", "-wal", "-journal")}
        self._descriptor = _watch_folder(database.parent)

    def wait(self, seconds: float) -> bool:
        """Wait until something was written, or so many seconds; whether something was."""
        if self._descriptor is None:
            self._closed.wait(seconds)
            return False
        if not select.select([self._descriptor], [], [], min(seconds, _NOTICE_CLOSE_S))[0]:
            return False
        content = os.read(self._descriptor, _READ_BYTES)
        return any(name in self._names for name in _names(content))

    def close(self) -> None:
        """Let go of the kernel's queue."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _watch_folder(folder: Path) -> int | None:
    """A descriptor that tells of writes to files in a folder; None where the system cannot or will not."""
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
    """The file names in what the kernel told."""
    at = 0
    while at < len(content):
        *_, length = _EVENT.unpack_from(content, at)
        at += _EVENT.size
        yield content[at : at + length].rstrip(b"\0")
        at += length
