"""Locks of a state directory, for one `serve`, one compaction and one seed at a time.

Two pipelines on one log would fence each other off in turn, without end, and two compactions would write to one folder.
The kernel releases the locks when the process ends (`service_kit.file_lock`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.errors import StateError
from service_kit.file_lock import FileLock
from service_kit.private_files import FILE_MODE

COMPACTING = "compaction-running"
SEEDING = "seed-running"
SERVE_LOCK = "serve.lock"


def state_lock(directory: Path) -> AbstractContextManager[None]:
    """Hold the lock of `serve` inside the block; raises `StateError` with the id of the process that has it."""
    fix = "stop it, or give this one a directory of its own with --state"
    return _lock(directory, SERVE_LOCK, "state-in-use", "process {} already serves from this directory", fix)


def compaction_lock(directory: Path) -> AbstractContextManager[None]:
    """Hold the lock of compaction inside the block; raises `StateError` with the id of the process that has it."""
    return _lock(
        directory, "compaction.lock", COMPACTING, "process {} compacts this log already", "wait until it is done"
    )


def seed_lock(directory: Path) -> AbstractContextManager[None]:
    """Hold the lock of seeds inside the block; raises `StateError` with the id of the process that has it."""
    return _lock(
        directory, "seed.lock", SEEDING, "process {} makes a seed of this log already", "wait until it is done"
    )


@contextmanager
def _lock(directory: Path, name: str, code: str, message: str, fix: str) -> Iterator[None]:
    StateDirectory(directory).create()
    with FileLock(directory / name) as lock:
        if not lock.acquire():
            raise StateError(code, message.format(lock.holder()), str(directory), fix)
        with disk_errors(directory):
            lock.sign()
        yield


class WriteTurn:
    """The queue of writers where several sources share a log in SQLite. Each has its own; used from one thread.

    SQLite lets one writer in at a time, and the others sleep for up to 100 ms between two attempts. A blocked `flock`
    is woken at once, so writers queue at one and find the database free.
    """

    def __init__(self, folder: Path) -> None:
        with disk_errors(folder):
            self._descriptor = os.open(folder / "append.lock", os.O_RDWR | os.O_CREAT, FILE_MODE)

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._descriptor)
