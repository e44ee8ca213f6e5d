"""Faults of the disk under the pipeline: a log that was cut, a disk without room."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory

ROOM_LEFT = 4096


def truncated_log(state: Path) -> int:
    """Cut the log of a stopped pipeline in two and remove its journal, as after a crash; returns the size left."""
    log = StateDirectory(state).log
    for journal in (log.with_name(f"{log.name}-wal"), log.with_name(f"{log.name}-shm")):
        journal.unlink(missing_ok=True)
    size = log.stat().st_size // 2
    with log.open("r+b") as file:
        file.truncate(size)
    return size


def full_disk(pid: int) -> Callable[[], None]:
    """Keep a process from writing files beyond a few KiB; call the result to make room again. Linux only.

    To the process this is a disk that has become full: the log cannot grow, while a small report can still be written.
    """
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (ROOM_LEFT, hard))

    def make_room() -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    return make_room
