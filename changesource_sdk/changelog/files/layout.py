"""The state directory: where everything durable lives, by name.

One place knows the file names; the pipeline, the endpoint and the command line share it. Making the directory is the
first thing a process does, so a directory that cannot be written is reported before any work.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.changelog.files.disk import NO_ROOM, disk_full
from changesource_sdk.errors import ReadOnlyState
from service_kit.private_files import FILE_MODE, new_folder, own_folder


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The paths under `root`, but for a spool that is shared with other hosts; nothing is created before `create`."""

    root: Path
    shared_spool: Path | None = None

    @property
    def log(self) -> Path:
        """The change log; written by the pipeline only."""
        return self.root / "log.sqlite"

    @property
    def segments(self) -> Path:
        """Block files of transactions too large for a row of the log."""
        return self.root / "segments"

    @property
    def spool(self) -> Path:
        """One folder per snapshot, named by its watermark."""
        return self.shared_spool or self.root / "spool"

    @property
    def compaction(self) -> Path:
        """Snapshots made from older ones, until the log's writer takes them over; on the spool's disk, so that taking
        over is renaming. Made when first used.
        """
        return self.spool / ".compaction"

    @property
    def consumers(self) -> Path:
        """What each consumer acknowledged; written by the endpoint only."""
        return self.root / "subscribers.sqlite"

    @property
    def stages(self) -> Path:
        """One small file per stage: position, age, counts, progress."""
        return self.root / "stages"

    @property
    def pokes(self) -> Path:
        """One file per waiting reader, named by its port."""
        return self.root / "pokes"

    @property
    def requests(self) -> Path:
        """What the endpoint asks of the pipeline."""
        return self.root / "requests"

    def create(self) -> StateDirectory:
        """Make the folders, for this user alone, and prove that they can be written."""
        try:
            new_folder(self.root)
            new_folder(self.spool)
            for folder in (self.segments, self.stages, self.pokes, self.requests):
                own_folder(folder)
            if self.shared_spool is None:
                own_folder(self.spool)
            for folder in (self.root, self.spool):
                probe = folder / f".writable-{os.getpid()}"
                probe.touch(mode=FILE_MODE)
                probe.unlink(missing_ok=True)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise disk_full(self.root) from error
            raise ReadOnlyState(
                "state-not-writable",
                f"the state directory cannot be written: {error.strerror or error}",
                where=str(self.root),
                fix="give this user write permission there, or choose another directory with --state",
            ) from error
        return self


def sync_directory(path: Path) -> None:
    """Make names created, renamed or removed in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
