"""Noticing that the state directory was removed, emptied or replaced under a running process.

Open files outlive their names: a pipeline would append to a log that nobody can open any more, and an endpoint would
serve it, until both are started again. So that is what happens: `serve` starts over with a new directory.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.files.lock import SERVE_LOCK

INTERVAL = 1.0

Identity = tuple[int, int] | None


class StateWatch:
    """Remembers which directory, and which files in it, are in use; made once they are there."""

    def __init__(self, layout: StateDirectory) -> None:
        paths = (layout.root, layout.root / SERVE_LOCK, layout.stages)
        self._in_use = {path: identity for path in paths if (identity := _identity(path)) is not None}

    async def run(self) -> None:
        """Return once one of them is gone or another one."""
        while all(_identity(path) == identity for path, identity in self._in_use.items()):  # noqa: ASYNC110
            await asyncio.sleep(INTERVAL)


def _identity(path: Path) -> Identity:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
