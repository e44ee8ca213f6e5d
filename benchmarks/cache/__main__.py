"""`python -m benchmarks.cache`: the official zero-cache and ours on the same workload; JSON out.

Exit code 1 when a target is missed. `--scale` shrinks rows, groups and changes for a quick look; only a run at scale 1
on an otherwise idle machine measures the targets as they are defined.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.cache import fan_out, ingest
from benchmarks.cache.fan_out import Plan
from benchmarks.run import run


def _allow_many_sockets() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _parts(scale: float) -> dict[str, Callable[[], Any]]:
    def scaled(number: int, least: int = 1) -> int:
        return max(least, round(number * scale))

    def groups(number: int, distinct: bool, burst: int, target: float) -> dict[str, Any]:
        count = scaled(number, 2)
        seconds = 10.0 * min(1.0, max(scale, 0.2))
        return fan_out.measure(Plan(count, count if distinct else 1, scaled(burst, count), seconds, target))

    return {
        "initial-sync": lambda: ingest.initial_sync(rows=scaled(500_000)),
        "ingest": lambda: ingest.live(plan={1: scaled(5000), 10: scaled(2000), 1000: scaled(60)}),
        "same-100": lambda: groups(100, False, 2000, 20.0),
        "same-500": lambda: groups(500, False, 1000, 20.0),
        "distinct-100": lambda: groups(100, True, 2000, 5.0),
    }


if __name__ == "__main__":
    _allow_many_sockets()
    sys.exit(run("cache", __doc__, _parts))
