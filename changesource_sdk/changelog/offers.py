"""Compacted snapshots on offer: made beside the log's writer, registered by it.

Compaction does not own the log. It leaves a complete snapshot in a folder of its own and a small file that says what
it was made from; the writer, which may be in another process, takes it when it next looks. An offer outlives both: one
that no longer fits the log is thrown away by whoever takes it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from changesource_sdk.changelog.atomic_json import read_json, write_json
from changesource_sdk.changelog.disk import disk_errors
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.log import LogWriter, SnapshotRecord
from changesource_sdk.changelog.snapshots import is_complete, read_manifest

_FILE = "offer.json"


def offer(layout: StateDirectory, base: str, directory: Path) -> None:
    """Offer the complete snapshot in `directory`, made from snapshot `base`."""
    with disk_errors(layout.compaction):
        write_json(layout.compaction / _FILE, {"base": base, "directory": directory.name}, durable=True)


def is_pending(layout: StateDirectory) -> bool:
    """Whether an offer waits for the writer."""
    return (layout.compaction / _FILE).exists()


def take_offer(layout: StateDirectory, writer: LogWriter) -> str | None:
    """Register what is on offer; its watermark, None if there is nothing or it no longer fits the log."""
    found = read_json(layout.compaction / _FILE)
    if found is None:
        return None
    directory = layout.compaction / str(found["directory"])
    registered = is_complete(directory) and writer.add_snapshot(str(found["base"]), _record(directory))
    withdraw(layout)
    return directory.name if registered else None


def withdraw(layout: StateDirectory) -> None:
    """Forget the offer and whatever else compaction left."""
    (layout.compaction / _FILE).unlink(missing_ok=True)
    shutil.rmtree(layout.compaction, ignore_errors=True)


def _record(directory: Path) -> SnapshotRecord:
    manifest = read_manifest(directory)
    return SnapshotRecord(manifest.watermark, 0, manifest.position, manifest.schema, directory, manifest.created_ms)
