"""The contract of a spool: files of snapshots that every host of a log can read."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol


class Spool(Protocol):
    """Folders of files; picklable. A snapshot's folder has the name of its watermark. `str()` of it is for messages.

    It needs neither rename nor locks, so that it can be an object store: a snapshot is complete when it has a manifest,
    which is put last and deleted first.
    """

    def put(self, folder: str, name: str, file: Path) -> None:
        """Store a finished file of this host under a name, by moving or copying it; replaces a former one."""

    def open(self, folder: str, name: str) -> AbstractContextManager[BinaryIO]:
        """Open one file for reading; raises `SnapshotGone` if it is not there."""

    def list(self, folder: str = "") -> dict[str, int]:
        """Return the files of a folder with their sizes in bytes, or the folders of the spool; empty if none exist."""

    def delete(self, folder: str, name: str = "") -> None:
        """Delete one file, or the folder with all its files; nothing happens if it is not there."""
