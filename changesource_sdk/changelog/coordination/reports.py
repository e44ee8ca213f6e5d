"""Reports of the pipeline's stages: how far each is, for `/statusz`, `inspect` and progress bars.

On one host a report is a small file that its process replaces. A log that hosts share has the reports as well, so that
an endpoint sees a pipeline that runs on another host.
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
    """What was last written to the log of a stage's report: the urgent part, and when (monotonic seconds) the next
    report is written even if that part is the same.
    """

    gist: object
    not_before: float


class Reports:
    """The reports of all stages of one log: in files of this host and, with `shared`, in the log. The newer counts.

    A report with something urgent (another state, an error, a new warning) is written to the log at once, others every
    `SHARE_EVERY_S` seconds. While the log does not answer, reports are in files only. `leave` never raises: a stage
    must not stop because its report cannot be written.
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
            # Most likely the disk is full, and the report says so: it must get through.
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
    """Return the latest report of each stage, of several sets of reports."""
    latest: dict[str, Report] = {}
    for reports in several:
        for stage, report in reports.items():
            if stage not in latest or _updated(report) > _updated(latest[stage]):
                latest[stage] = report
    return latest


def _updated(report: Report) -> float:
    updated = report.get("updated_ms")
    return float(updated) if isinstance(updated, int | float) else 0.0
