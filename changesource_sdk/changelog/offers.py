"""Compacted snapshots on offer: made beside the log's writer, registered by it.

Compaction does not own the log. It leaves a complete snapshot in a folder of its own and a note that says what it was
made from; the writer, which may be in another process, takes it when it next looks. An offer outlives both: one that no
longer fits the log is thrown away by whoever takes it. Where hosts share a spool by URI, the note is in the log's
database (`postgres.coordination`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import LogWriter, SnapshotRecord
from changesource_sdk.changelog.spool.snapshots import Manifest, is_complete, read_manifest

_FILE = "offer.json"


class Offers(Protocol):
    """At most one offer per log."""

    def make(self, base: str, directory: Path) -> None:
        """Offer the complete snapshot in `directory`, made from snapshot `base`."""

    def is_pending(self) -> bool:
        """Whether an offer waits for the writer."""

    def take(self, writer: LogWriter) -> str | None:
        """Register what is on offer; its watermark, None if there is nothing or it no longer fits the log."""

    def withdraw(self) -> None:
        """Forget the offer and whatever else compaction left."""


@dataclass(frozen=True, slots=True)
class FileOffers:
    """`Offers` in the folder where compaction works, on the spool's disk."""

    layout: StateDirectory

    def make(self, base: str, directory: Path) -> None:
        """Offer the complete snapshot in `directory`, made from snapshot `base`."""
        with disk_errors(self.layout.compaction):
            note = {"base": base, "directory": directory.name}
            write_json(self.layout.compaction / _FILE, note, durable=True)

    def is_pending(self) -> bool:
        """Whether an offer waits for the writer."""
        return (self.layout.compaction / _FILE).exists()

    def take(self, writer: LogWriter) -> str | None:
        """Register what is on offer."""
        found = read_json(self.layout.compaction / _FILE)
        if found is None:
            return None
        directory = self.layout.compaction / str(found["directory"])
        is_whole = is_complete(directory)
        registered = is_whole and writer.add_snapshot(str(found["base"]), record(read_manifest(directory), directory))
        self.withdraw()
        return directory.name if registered else None

    def withdraw(self) -> None:
        """Forget the offer and whatever else compaction left."""
        (self.layout.compaction / _FILE).unlink(missing_ok=True)
        shutil.rmtree(self.layout.compaction, ignore_errors=True)


def record(manifest: Manifest, directory: Path) -> SnapshotRecord:
    """What the log's writer needs to know of a snapshot on offer."""
    return SnapshotRecord(manifest.watermark, 0, manifest.position, manifest.schema, directory, manifest.created_ms)
