"""Reports of the pipeline's stages: how far each is, left by its process for `/statusz`, `inspect` and progress bars.

On one host a report is a small file, replaced whole. A log that hosts share carries the reports as well, so that an
endpoint sees a pipeline that runs elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from changesource_sdk.changelog.coordination.contract import Note, Notes
from changesource_sdk.changelog.files.atomic_json import overwrite_json, read_json, write_json
from changesource_sdk.errors import ChangesourceError

Report = dict[str, object]

SHARE_EVERY_S = 1.0
_TRY_AGAIN_S = 5.0


class _Shared(NamedTuple):
    """What the other hosts were last sent of a stage's report, and when (monotonic seconds) the rest may follow."""

    gist: object
    not_before: float


class Reports:
    """The reports of all stages of one log, on this host and, with `shared`, in the log; the newer counts.

    The log gets what is urgent (another state, an error, a new warning) at once and the rest every second. While it
    does not answer, reports are kept on this host only. Leaving a report never fails: no stage stops for want of one.
    """

    def __init__(self, folder: Path, shared: Notes | None = None) -> None:
        self._folder = folder
        self._shared = shared
        # By stage; written by `leave`, which each stage calls under a lock of its own.
        self._sent: dict[str, _Shared] = {}

    def leave(self, stage: str, report: Mapping[str, object]) -> None:
        """Replace the report of a stage."""
        path = self._folder / f"{stage}.json"
        try:
            write_json(path, report)
        except OSError:
            # Most likely the disk is full, which is just what the report should say.
            with contextlib.suppress(OSError):
                overwrite_json(path, report)
        if self._shared is not None:
            self._send(self._shared, stage, report)

    def _send(self, shared: Notes, stage: str, report: Mapping[str, object]) -> None:
        gist = report.get("state"), report.get("error"), report.get("urgent")
        sent, now = self._sent.get(stage, _Shared(None, 0.0)), time.monotonic()
        if sent.gist == gist and now < sent.not_before:
            return
        try:
            shared.leave("reports", stage, Note("", json.dumps(report)))
            self._sent[stage] = _Shared(gist, now + SHARE_EVERY_S)
        except ChangesourceError:
            self._sent[stage] = _Shared(gist, now + _TRY_AGAIN_S)

    def all(self) -> dict[str, Report]:
        """The newest report of every stage, by name. Blocking."""
        read = {path.stem: read_json(path) for path in sorted(self._folder.glob("*.json"))}
        here = {stage: report for stage, report in read.items() if report is not None}
        if self._shared is None:
            return here
        try:
            notes = self._shared.notes("reports")
        except ChangesourceError:
            return here
        return newest({stage: json.loads(note.text) for stage, note in notes.items()}, here)


def newest(*several: Mapping[str, Report]) -> dict[str, Report]:
    """Of several sets of reports, the latest of each stage."""
    latest: dict[str, Report] = {}
    for reports in several:
        for stage, report in reports.items():
            if stage not in latest or _updated(report) > _updated(latest[stage]):
                latest[stage] = report
    return latest


def _updated(report: Report) -> float:
    updated = report.get("updated_ms")
    return float(updated) if isinstance(updated, int | float) else 0.0
