"""Reports of stages beside the log: how far each is, left by its process for whoever looks.

On one host a report is a small file, replaced whole. A log that hosts share carries them along as well
(`postgres.coordination`), so that an endpoint sees a pipeline that runs elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from changesource_sdk.changelog.files.atomic_json import overwrite_json, read_json, write_json

Report = dict[str, object]


class Reports(Protocol):
    """The reports of all stages of one log. Leaving one never fails: a stage must not stop for want of a report."""

    def leave(self, stage: str, report: Mapping[str, object]) -> None:
        """Replace the report of a stage."""

    def all(self) -> dict[str, Report]:
        """The newest report of every stage, by name. Blocking."""


@dataclass(frozen=True, slots=True)
class FileReports:
    """`Reports` in a folder of this host."""

    folder: Path

    def leave(self, stage: str, report: Mapping[str, object]) -> None:
        """Replace the report of a stage."""
        path = self.folder / f"{stage}.json"
        try:
            write_json(path, report)
        except OSError:
            # Most likely the disk is full, which is just what the report should tell.
            with contextlib.suppress(OSError):
                overwrite_json(path, report)

    def all(self) -> dict[str, Report]:
        """All reports, by stage."""
        found = {path.stem: read_json(path) for path in sorted(self.folder.glob("*.json"))}
        return {stage: report for stage, report in found.items() if report is not None}


def newest(*several: Mapping[str, Report]) -> dict[str, Report]:
    """Of several sets of reports, the latest of each stage."""
    found: dict[str, Report] = {}
    for reports in several:
        for stage, report in reports.items():
            if stage not in found or _updated(report) > _updated(found[stage]):
                found[stage] = report
    return found


def _updated(report: Report) -> float:
    updated = report.get("updated_ms")
    return float(updated) if isinstance(updated, int | float) else 0.0
