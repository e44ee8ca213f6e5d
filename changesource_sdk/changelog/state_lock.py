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

from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.errors import StateError

COMPACTING = "compaction-running"


def state_lock(directory: Path) -> AbstractContextManager[None]:
    """Hold a state directory for this process. Raises `StateError` naming the process that has it."""
    fix = "stop it, or give this one a directory of its own with --state"
    return _lock(directory, "serve.lock", "state-in-use", "process {} already serves from this directory", fix)


def compaction_lock(directory: Path) -> AbstractContextManager[None]:
    """Be the one that compacts. Raises `StateError` naming the process that does."""
    return _lock(
        directory, "compaction.lock", COMPACTING, "process {} compacts this log already", "wait until it is done"
    )


@contextmanager
def _lock(directory: Path, name: str, code: str, message: str, fix: str) -> Iterator[None]:
    StateDirectory(directory).create()
    with (directory / name).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise StateError(code, message.format(holder), str(directory), fix) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
