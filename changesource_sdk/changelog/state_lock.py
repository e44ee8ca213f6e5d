"""One `serve` per state directory: two pipelines on one log would fence each other off in turn, for ever.

The lock is the kernel's and goes away with the process, however it ends; the file itself may stay.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.errors import StateError


@contextmanager
def state_lock(directory: Path) -> Iterator[None]:
    """Hold a state directory for this process. Raises `StateError` naming the process that has it."""
    StateDirectory(directory).create()
    with (directory / "serve.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise StateError(
                "state-in-use",
                f"process {holder} already serves from this directory",
                str(directory),
                "stop it, or give this one a directory of its own with --state",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
