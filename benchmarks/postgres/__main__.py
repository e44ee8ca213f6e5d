"""`python -m benchmarks.postgres`: run the measurements and write them as JSON, with all they depend on.

Exit code 1 when a target is missed. `--scale` shrinks rows, changes and minutes for a quick look; only a run at scale 1
measures the targets as they are defined.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.postgres import changes, live, snapshot
from benchmarks.run import run


def _parts(scale: float) -> dict[str, Callable[[], dict[str, Any]]]:
    return {
        "snapshot": lambda: snapshot.measure(rows=max(1, round(1_000_000 * scale))),
        "changes": lambda: changes.measure(changes=max(1000, round(100_000 * scale))),
        "live": lambda: live.measure(seconds=max(4.0, 600 * scale)),
    }


if __name__ == "__main__":
    sys.exit(run("postgres", __doc__, _parts))
