"""Handing a compacted snapshot to the log's writer.

Compaction does not write the log. It leaves a complete snapshot in a separate folder and a note with the snapshot that
it was made from, the offer. The writer, which may be in another process, takes the offer at its next poll, and discards
one that no longer fits the log. An offer survives a restart of either process.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from changesource_sdk.changelog.coordination.contract import Note, Notes
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import SnapshotRecord
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.changelog.spool.snapshots import Manifest
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.errors import SnapshotGone

_OFFER = "offer"


class SnapshotHandoff:
    """At most one offer per log. The note is kept where all hosts of the log see it, as the snapshot's files are."""

    def __init__(self, layout: StateDirectory, files: SnapshotFiles, notes: Notes) -> None:
        self._layout = layout
        self._files = files
        self._notes = notes

    def offer(self, base: str, directory: Path) -> None:
        """Offer the complete snapshot in `directory`, named by its watermark and made from snapshot `base`."""
        self._notes.leave("requests", _OFFER, Note(directory.name, base))

    def is_pending(self) -> bool:
        """Whether an offer waits for the writer."""
        return bool(self._notes.notes("requests", _OFFER))

    def take(self, writer: LogWriter) -> str | None:
        """Register the offered snapshot in the log and return its watermark.

        None if there is no offer, or if it no longer fits the log and was discarded. Called by the writer's thread.
        """
        note = self._notes.notes("requests", _OFFER).get(_OFFER)
        if note is None:
            return None
        watermark, base = note
        directory = self._layout.compaction / watermark
        try:
            manifest = self._files.offered_manifest(directory)
            registered = writer.add_snapshot(base, _record(manifest, directory))
        except SnapshotGone:
            registered = False
        self.withdraw()
        return watermark if registered else None

    def withdraw(self) -> None:
        """Forget the offer and delete what compaction left on this host."""
        self._notes.remove("requests", _OFFER)
        shutil.rmtree(self._layout.compaction, ignore_errors=True)


def _record(manifest: Manifest, directory: Path) -> SnapshotRecord:
    return SnapshotRecord(manifest.watermark, 0, manifest.position, manifest.schema, directory, manifest.created_ms)
