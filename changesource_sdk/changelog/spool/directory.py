"""A spool that is a directory: on this host, or mounted by every host of the log under the same path."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.spool.snapshots import gone


@dataclass(frozen=True, slots=True)
class DirectorySpool:
    """A `Spool` of folders under `root`. Files are moved into it, so they must be on the same disk."""

    root: Path

    def __str__(self) -> str:
        return str(self.root)

    def put(self, folder: str, name: str, file: Path) -> None:
        """Rename the file; its source is gone afterwards."""
        with disk_errors(self.root):
            file.rename(self.root / folder / name)

    @contextmanager
    def open(self, folder: str, name: str) -> Iterator[BinaryIO]:
        """Open the file for reading; raises `SnapshotGone` if it is not there."""
        try:
            file = (self.root / folder / name).open("rb")
        except FileNotFoundError as error:
            raise gone(folder, str(self)) from error
        with file:
            yield file

    def list(self, folder: str = "") -> dict[str, int]:
        """List the entries, without those that are deleted meanwhile."""
        sizes: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    sizes[entry.name] = entry.stat().st_size
        return sizes

    def delete(self, folder: str, name: str = "") -> None:
        """Delete a file or a folder."""
        if name:
            (self.root / folder / name).unlink(missing_ok=True)
        else:
            shutil.rmtree(self.root / folder, ignore_errors=True)
