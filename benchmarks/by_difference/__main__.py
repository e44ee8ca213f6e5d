"""`python -m benchmarks.by_difference`: a table of 1M rows that is listed and compared, as JSON.

Each step runs in a process of its own, so that its peak memory is its own: the bare listing (rows made and dropped),
the snapshot, a poll without a change, and a poll after 1 % of the rows changed. Target: no step needs more than 100 MB
above the bare listing, however many rows there are. `--scale` shrinks the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.run import run

ROWS = 1_000_000
MOST_MB = 100.0


def measure(rows: int) -> dict[str, Any]:
    """All steps over one state folder."""
    with tempfile.TemporaryDirectory(prefix="changesource-by-difference-") as folder:
        figures = {step: _run(step, rows, folder) for step in ("listing", "snapshot", "unchanged", "changed")}
        size = sum(path.stat().st_size for path in Path(folder).glob("state/*/digests.sqlite"))
    base = figures["listing"]["peakMB"]
    extra = round(max(step["peakMB"] for step in figures.values()) - base, 1)
    return {
        "rows": rows,
        **figures,
        "bytesPerRow": round(size / rows, 1),
        "peakAboveListingMB": extra,
        "target": f"at most {MOST_MB:g} MB above the bare listing",
        "met": extra <= MOST_MB,
    }


def _run(step: str, rows: int, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.by_difference.step", step, str(rows), folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _parts(scale: float) -> dict[str, Callable[[], dict[str, Any]]]:
    return {"table": lambda: measure(max(5_000, round(ROWS * scale)))}


if __name__ == "__main__":
    sys.exit(run("by_difference", __doc__, _parts))
