"""The state folder: one folder per snapshot, named by a number that grows with the clock and is never used twice.

A position names the folder, so a snapshot that is being taken, or that another command takes (`changesource verify`),
does not touch the digests that a running pipeline uses. A folder is deleted when a position in a later one is durable,
or when the process that filled it died before it was done.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from changesource_sdk.errors import AdapterError
from service_kit.file_lock import FileLock

DIGESTS = "digests.sqlite"
_BEING_FILLED = "being-filled"
ABANDONED_AFTER_S = 86_400.0
"""A later folder that no position names yet may be a snapshot that is still being read; after a day it is not."""


class StateFolders:
    """The folders of one adapter."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def digests(self, number: int) -> Path:
        """The digest file of a folder; it may not exist."""
        return self._root / str(number) / DIGESTS

    @contextmanager
    def fill(self) -> Iterator[tuple[int, Path]]:
        """A new folder to fill inside the block; it is deleted if the block raises, or the process dies in it.

        Raises `AdapterError` if it cannot be created.
        """
        number, folder = self._create()
        marker = folder / _BEING_FILLED
        with FileLock(marker) as lock:
            if not lock.acquire():
                raise AdapterError("state-in-use", "another process removes the folder", str(folder), "try again")
            try:
                yield number, folder
                marker.unlink()
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise

    def forget_before(self, number: int) -> None:
        """Delete the folders that only earlier positions need, and later ones that were abandoned."""
        for each, folder in self._folders():
            if each < number or (each > number and _is_abandoned(folder)):
                shutil.rmtree(folder, ignore_errors=True)

    def _create(self) -> tuple[int, Path]:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._remove_unfinished()
            number = max([time.time_ns() // 1000, *(each + 1 for each, _ in self._folders())])
            folder = self._root / str(number)
            folder.mkdir(mode=0o700)
        except OSError as error:
            fix = "give the adapter a folder that this user can write: --set state=…"
            raise AdapterError("state-unusable", f"the state folder cannot be used: {error}", fix=fix) from error
        return number, folder

    def _remove_unfinished(self) -> None:
        """Delete folders whose process died while it filled them: nobody holds the lock of their marker."""
        for _, folder in self._folders():
            marker = folder / _BEING_FILLED
            if marker.exists():
                with FileLock(marker) as lock:
                    if lock.acquire():
                        shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[tuple[int, Path]]:
        return [(int(path.name), path) for path in self._root.glob("*") if path.name.isdigit()]


def _is_abandoned(folder: Path) -> bool:
    try:
        is_old = time.time() - folder.stat().st_mtime > ABANDONED_AFTER_S
    except FileNotFoundError:  # another process has just deleted it
        return False
    return is_old and not (folder / _BEING_FILLED).exists()
