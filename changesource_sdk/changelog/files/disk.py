"""Translates `OSError`s of the state directory into `DiskFull` or `StateError`."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from changesource_sdk.errors import DiskFull, StateError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_full(path: Path) -> DiskFull:
    """Return the error for a full disk. Use it only where a failed write leaves nothing: the message promises that."""
    return DiskFull(
        "disk-full",
        "there is no room to write; nothing was half-written and it is tried again",
        where=str(path),
        fix="free space on the disk of the state directory",
    )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise `DiskFull` or `StateError` for an `OSError` inside the block."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise disk_full(path) from error
        raise StateError(
            "state-io",
            f"the state directory failed: {error}",
            where=str(path),
            fix="check the disk and the permissions of the state directory",
        ) from error
