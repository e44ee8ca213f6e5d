"""The unfinished snapshot: what a runner needs to resume one that was interrupted, part by part.

A snapshot whose upstream can show it again to a later process (`Snapshot.can_resume`) is stored before its first part
is written, and every finished part has a note in the same folder (`spool.parts`). The next snapshot of the same
source finds both and reads only what is missing. A snapshot is forgotten when it is in the log, or when its rows
turn out to be at fault: reading those again would fail again.

The file is a pickle, readable by its owner only, like everything in a state directory that holds settings.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Snapshot, Table
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool.snapshots import RESUMABLE
from changesource_sdk.pipeline.snapshot.former_modules import unpickled
from service_kit.logs import event, logger

_log = logger("runner")
_FILE = "unfinished-snapshot.pickle"


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """A snapshot under way: what to read, and where its parts go."""

    watermark: str
    directory: Path
    snapshot: Snapshot
    tables: tuple[Table, ...]
    created_ms: float

    def close(self) -> None:
        """Release what the upstream keeps for the snapshot; a failure is logged."""
        try:
            if self.snapshot.close is not None:
                self.snapshot.close()
        except Exception as error:
            event(_log, logging.WARNING, "closing the snapshot failed", error=error)


class Unfinished:
    """At most one plan per state directory, of the source that `source` names (adapter and settings); "" is none."""

    def __init__(self, layout: StateDirectory, source: str = "") -> None:
        self._path = layout.root / _FILE
        self._spool = layout.spool
        self._source = source

    def keep(self, plan: SnapshotPlan) -> bool:
        """Store a plan if its upstream can show the snapshot again; whether it can."""
        if plan.snapshot.can_resume is None:
            return False
        try:
            content = pickle.dumps((self._source, plan))
        except Exception as error:
            event(_log, logging.WARNING, "the snapshot cannot be resumed if it is interrupted", error=error)
            return False
        with disk_errors(self._path):
            staged = self._path.with_suffix(".staged")
            descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            staged.replace(self._path)
        return True

    def resume(self, is_high_enough: Callable[[str], bool]) -> SnapshotPlan | None:
        """The plan to resume; one that cannot be resumed is forgotten."""
        source, plan = self._read()
        if plan is None or source != self._source or not is_high_enough(plan.watermark) or not _is_usable(plan):
            self.forget()
            return None
        event(_log, logging.INFO, "continuing an interrupted snapshot", of=len(plan.snapshot.partitions))
        return plan

    def _read(self) -> tuple[str, SnapshotPlan | None]:
        try:
            source, plan = unpickled(self._path.read_bytes())
        except FileNotFoundError:
            return "", None
        except Exception as error:
            # Most likely an adapter of another release; the snapshot starts over.
            event(_log, logging.WARNING, "the interrupted snapshot cannot be read", error=error)
            return "", None
        return (source, plan) if isinstance(plan, SnapshotPlan) else ("", None)

    def forget(self) -> None:
        """Delete the plan, what the upstream keeps for it, and parts that are not yet a snapshot."""
        _, plan = self._read()
        if plan is not None:
            plan.close()
        for folder in self._spool.glob(f"*{RESUMABLE}"):
            shutil.rmtree(folder, ignore_errors=True)
        self._path.unlink(missing_ok=True)


def _is_usable(plan: SnapshotPlan) -> bool:
    if plan.snapshot.can_resume is None or not plan.directory.is_dir():
        return False
    try:
        return plan.snapshot.can_resume()
    except Exception as error:
        event(_log, logging.WARNING, "the interrupted snapshot cannot be read again", error=error)
        return False
