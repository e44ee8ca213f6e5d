"""The paths of the state directory, for the pipeline, the endpoint and the command line.

A process calls `create` before anything else, so that a directory that cannot be written is reported at once.
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
    """The paths under `root`, and of the spool if it is elsewhere (`shared_spool`). Only `create` makes folders."""

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
        """Compacted snapshots that wait for the log's writer (`handoff`); made when first used.

        They are on the spool's disk, so that the writer can rename them.
        """
        return self.spool / ".compaction"

    @property
    def source_reads(self) -> Path:
        """Parts of sources that are being read, where several share the log; made when first used."""
        return self.spool / ".sources"

    @property
    def consumers(self) -> Path:
        """The record of consumers; written by the endpoint only."""
        return self.root / "subscribers.sqlite"

    @property
    def stages(self) -> Path:
        """One report per stage: position, age, counts, progress."""
        return self.root / "stages"

    @property
    def pokes(self) -> Path:
        """One file per reader that listens for wake-ups, named by its port."""
        return self.root / "pokes"

    @property
    def requests(self) -> Path:
        """Requests of the endpoint to the pipeline."""
        return self.root / "requests"

    def create(self) -> StateDirectory:
        """Make the folders, with access for this user only, and write to them; raises `ReadOnlyState` or `DiskFull`."""
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
    """Sync a folder to disk, so that names created, renamed or removed in it are durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
