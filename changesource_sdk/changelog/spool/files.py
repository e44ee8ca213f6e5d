"""The files of one log's snapshots: in a directory of all its hosts, or in a remote spool and fetched when needed.

With a remote spool (a URI), tasks put the parts that they write there (`parts`), and the pipeline adds its own files
before it registers the snapshot in the log. An endpoint downloads a snapshot once and serves it from its own disk.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from changesource_sdk.changelog.files.atomic_json import parsed_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.snapshots import MANIFEST, Manifest, gone, is_complete, read_manifest
from changesource_sdk.changelog.spool.spool import Spool
from changesource_sdk.errors import SnapshotGone
from protocol.watermark import is_valid

_COPY_BYTES = 4 * 1024 * 1024
_PARTIAL = ".partial"


class SnapshotFiles:
    """The snapshots of one log. Each is named by its folder on this host, whose name is the snapshot's watermark.

    `spool` is None if the files are in that folder only. Picklable; threads may share it.
    """

    def __init__(self, layout: StateDirectory, spool: Spool | None = None) -> None:
        self.layout = layout
        self.spool = spool
        # One download at a time: two consumers of the same snapshot need it once.
        self._fetching = threading.Lock()

    def __reduce__(self) -> tuple[type[SnapshotFiles], tuple[StateDirectory, Spool | None]]:
        return SnapshotFiles, (self.layout, self.spool)

    def holds(self, directory: Path) -> bool:
        """Whether all files of a snapshot are there, each of its full size. Blocking."""
        if self.spool is None:
            return is_complete(directory)
        try:
            parts = self.manifest(directory).parts
        except SnapshotGone:
            return False
        sizes = self.spool.list(directory.name)
        return all(sizes.get(part.file, -1) >= part.bytes for part in parts)

    def manifest(self, directory: Path) -> Manifest:
        """Read the manifest of a snapshot; raises `SnapshotGone` if there is none. Blocking."""
        if self.spool is None:
            return read_manifest(directory)
        with self.spool.open(directory.name, MANIFEST) as content:
            return snapshots.manifest_of(parsed_json(content.read()), directory)

    def offered_manifest(self, directory: Path) -> Manifest:
        """Read the manifest of a compacted snapshot before it is moved; raises `SnapshotGone` if files are missing."""
        if self.spool is None and not is_complete(directory):
            raise gone(directory.name, str(directory.parent))
        return self.manifest(directory)

    def is_published(self, directory: Path) -> bool:
        """Whether other hosts can read a snapshot that is complete on this one. Blocking."""
        return self.spool is None or self.holds(directory)

    def copy(self, watermark: str, name: str, target: Path) -> None:
        """Copy one file of a snapshot from the remote spool to `target`; raises `SnapshotGone` if it is not there."""
        if self.spool is None:
            raise gone(watermark, str(self.layout.spool))
        with self.spool.open(watermark, name) as content, target.open("wb") as sink:
            shutil.copyfileobj(content, sink, _COPY_BYTES)

    def fetch(self, directory: Path) -> Path:
        """Return the folder of a snapshot on this host. Blocking.

        With a remote spool the snapshot is downloaded if it is not here yet, and earlier ones are deleted first.
        """
        if self.spool is None:
            return directory
        with self._fetching:
            if not is_complete(directory):
                self.layout.create()
                _sweep(self.layout.spool, [directory.name])
                self._download(directory)
        return directory

    def _download(self, final: Path) -> None:
        staged = snapshots.stage(final.parent, final.name)
        self.copy(final.name, MANIFEST, staged / MANIFEST)
        for part in read_manifest(staged).parts:
            self.copy(final.name, part.file, staged / part.file)
        with disk_errors(final.parent):
            shutil.rmtree(final, ignore_errors=True)
            staged.rename(final)

    def publish(self, directory: Path) -> None:
        """Copy the files of a finished snapshot from this host to the remote spool. Blocking; may be repeated.

        Raises `SnapshotGone` if a part is neither here nor in the spool.
        """
        if self.spool is None:
            return
        watermark, parts = directory.name, read_manifest(directory).parts
        here = [part for part in parts if (directory / part.file).exists()]
        sizes = self.spool.list(watermark)
        for part in parts:
            if part not in here and sizes.get(part.file, -1) < part.bytes:
                raise SnapshotGone(
                    "part-missing",
                    f"{part.file} of snapshot {watermark} is not in the spool",
                    str(self.spool),
                    "it is retried",
                )
        for part in here:
            self.spool.put(watermark, part.file, directory / part.file)
        self.spool.put(watermark, MANIFEST, directory / MANIFEST)

    def part_store(self, directory: Path) -> PartStore:
        """Return the store into which tasks put the parts of the snapshot that is staged in `directory`."""
        if self.spool is None:
            return PartStore.local(directory)
        return PartStore(self.spool, directory.name.partition(".")[0])

    def highest(self) -> str:
        """Return the highest watermark of any snapshot's folder, "" if there is none.

        It counts as used even if the log that had the snapshot is lost.
        """
        names = [entry.name for entry in self.layout.spool.iterdir()]
        return max(filter(is_valid, [*names, *self._shared()]), default="")

    def _shared(self) -> list[str]:
        """Return the watermarks of the snapshots in the remote spool, complete or not, in order."""
        return sorted(filter(is_valid, self.spool.list())) if self.spool is not None else []

    def sweep(self, named: Sequence[str]) -> None:
        """Delete this host's snapshots but for the newest of `named`, those in the log, oldest first.

        A snapshot that a process is reading stays until a later call. Other entries of the spool are not touched.
        """
        _sweep(self.layout.spool, named)

    def sweep_shared(self, named: Sequence[str]) -> None:
        """Do the same for the remote spool. A snapshot above all in the log is still being written, and stays."""
        if self.spool is None:
            return
        newest = max(named, default="")
        for watermark in self._shared():
            if watermark < newest and watermark not in named[-1:]:
                self.spool.delete(watermark, MANIFEST)
                self.spool.delete(watermark)


def _sweep(folder: Path, named: Sequence[str]) -> None:
    for entry in folder.iterdir():
        if entry.name not in named[-1:] and is_valid(entry.name.removesuffix(_PARTIAL)):
            snapshots.discard(entry)
