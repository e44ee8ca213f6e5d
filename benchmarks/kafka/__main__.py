"""`python -m benchmarks.kafka`: run the measurements and write them as JSON, with all they depend on.

Exit code 1 when a target is missed. `--scale` shrinks records and seconds for a quick look; only a run at scale 1
measures the targets as they are defined.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.kafka import latency, rate, snapshot
from benchmarks.run import run


def _parts(scale: float) -> dict[str, Callable[[], dict[str, Any]]]:
    return {
        "latency": lambda: latency.measure(records=max(40, round(500 * scale))),
        "rate": lambda: rate.measure(records=max(4_000, round(400_000 * scale))),
        "snapshot": lambda: snapshot.measure(records=max(8_000, round(2_000_000 * scale))),
    }


if __name__ == "__main__":
    sys.exit(run("kafka", __doc__, _parts))
