"""Noticing that the state directory was removed, emptied or replaced while `serve` runs.

Open files outlive their names: the pipeline would append to a log that no other process can open, and the endpoint
would serve it. So `serve` starts over with a new directory.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.files.lock import SERVE_LOCK

INTERVAL = 1.0
"""Seconds between two checks."""

Identity = tuple[int, int] | None
"""Device and inode; None if there is no such file."""


class StateWatch:
    """Remembers the directory and the files that exist when it is constructed."""

    def __init__(self, layout: StateDirectory) -> None:
        paths = (layout.root, layout.root / SERVE_LOCK, layout.stages)
        self._in_use = {path: identity for path in paths if (identity := _identity(path)) is not None}

    async def run(self) -> None:
        """Return once one of them is removed or replaced."""
        while all(_identity(path) == identity for path, identity in self._in_use.items()):  # noqa: ASYNC110
            await asyncio.sleep(INTERVAL)


def _identity(path: Path) -> Identity:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
