"""`python -m benchmarks.endpoint`: run the measurements and write them as JSON, with all they depend on.

Exit code 1 when a target is missed, so that a run can guard them. `--scale` shrinks everything for a quick
look; only a run at scale 1 measures the targets as they are defined.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.endpoint import fan_out, first_state, latency, memory, throughput
from benchmarks.endpoint.session import OPTIONS
from benchmarks.run import run


def _parts(scale: float) -> dict[str, Callable[[], dict[str, Any]]]:
    def scaled(number: int) -> int:
        return max(1, round(number * scale))

    plan = f"1x{scaled(5000)},10x{scaled(2000)},1000x{scaled(60)}"
    return {
        "throughput": lambda: throughput.measure(rows=scaled(500_000), plan=plan),
        "memory": lambda: memory.measure(rows=scaled(5_000_000)),
        "latency": lambda: latency.measure(transactions=scaled(1000)),
        "first-state": lambda: first_state.measure(rows=scaled(100_000), transactions=scaled(200_000)),
        "fan-out": lambda: fan_out.measure(consumers=50, transactions=scaled(200), size=100),
    }


if __name__ == "__main__":
    sys.exit(run("endpoint", __doc__, _parts, settings=" ".join(OPTIONS)))
