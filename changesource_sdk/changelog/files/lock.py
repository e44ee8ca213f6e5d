"""One `serve` per state directory, and one compaction: two pipelines on one log would fence each other off in turn, for
ever, and two compactions would write to one folder.

The locks are the kernel's and go away with the process, however it ends; the files themselves may stay.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.files.private import opener
from changesource_sdk.errors import StateError

COMPACTING = "compaction-running"
SERVE_LOCK = "serve.lock"


def state_lock(directory: Path) -> AbstractContextManager[None]:
    """Hold a state directory for this process. Raises `StateError` naming the process that has it."""
    fix = "stop it, or give this one a directory of its own with --state"
    return _lock(directory, SERVE_LOCK, "state-in-use", "process {} already serves from this directory", fix)


def compaction_lock(directory: Path) -> AbstractContextManager[None]:
    """Be the one that compacts. Raises `StateError` naming the process that does."""
    return _lock(
        directory, "compaction.lock", COMPACTING, "process {} compacts this log already", "wait until it is done"
    )


@contextmanager
def _lock(directory: Path, name: str, code: str, message: str, fix: str) -> Iterator[None]:
    StateDirectory(directory).create()
    # Unbuffered: what a full disk has no room for must not be tried again when the file is closed.
    with open(directory / name, "ab+", buffering=0, opener=opener) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().decode().strip() or "unknown"
            raise StateError(code, message.format(holder), str(directory), fix) from None
        with disk_errors(directory):
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield
