"""The files of snapshots, where every host of a log reaches them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol


class Spool(Protocol):
    """Folders of files; picklable. A snapshot's folder has the name of its watermark. `str()` of it is for messages.

    It needs neither rename nor locks, so an object store will do: what makes a snapshot complete is its manifest, which
    is put last and deleted first.
    """

    def put(self, folder: str, name: str, file: Path) -> None:
        """Store a finished file of this host under a name, by moving or copying it; one that is there is replaced."""

    def open(self, folder: str, name: str) -> AbstractContextManager[BinaryIO]:
        """Read one file; `SnapshotGone` if it is not there."""

    def list(self, folder: str = "") -> dict[str, int]:
        """The files of a folder with their sizes in bytes; of the spool itself, its folders. Empty if there is none."""

    def delete(self, folder: str, name: str = "") -> None:
        """Delete one file, or the folder with all its files; nothing happens if it is not there."""
