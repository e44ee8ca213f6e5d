"""`python -m benchmarks.cache`: the official zero-cache and ours on the same workload; JSON out.

Exit code 1 when a target is missed. `--scale` shrinks rows, groups and changes for a quick look; only a run at scale 1
on an otherwise idle machine measures the targets as they are defined.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.cache import fan_out, ingest
from benchmarks.cache.fan_out import Plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache", description=__doc__)
    parser.add_argument("parts", nargs="*", help="initial-sync, ingest, same-100, same-500, distinct-100; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows, groups and changes")
    parser.add_argument("--out", type=Path, help="file for the JSON; default standard output")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that contexts end what they started
    _allow_many_sockets()
    parts = _parts(asked.scale)
    unknown = set(asked.parts) - set(parts)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    document: dict[str, Any] = {"benchmark": "cache", "scale": asked.scale, "environment": environment.describe()}
    for name in asked.parts or parts:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        document[name] = parts[name]()
        if asked.out is not None:  # after each part: a run of many minutes may be cut short
            asked.out.write_text(json.dumps(document, indent=2) + "\n")
    if asked.out is None:
        print(json.dumps(document, indent=2))
    return 0 if environment.all_met(document) else 1


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
    sys.exit(main())
