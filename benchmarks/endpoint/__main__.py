"""`python -m benchmarks.endpoint`: run the measurements and write them as JSON, with all they depend on.

Exit code 1 when a target is missed, so that a run can guard them. `--scale` shrinks everything for a quick
look; only a run at scale 1 measures the targets as they are defined.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.endpoint import fan_out, latency, memory, throughput
from benchmarks.endpoint.session import OPTIONS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endpoint", description=__doc__)
    parser.add_argument("parts", nargs="*", help="throughput, memory, latency, fan-out; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows and transactions")
    parser.add_argument("--out", type=Path, help="file for the JSON; default standard output")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that contexts end what they started
    parts = _parts(asked.scale)
    unknown = set(asked.parts) - set(parts)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    document: dict[str, Any] = {"benchmark": "endpoint", "scale": asked.scale, "environment": environment.describe()}
    document["settings"] = " ".join(OPTIONS)
    for name in asked.parts or parts:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        document[name] = parts[name]()
        if asked.out is not None:  # after each part: a run of many minutes may be cut short
            asked.out.write_text(_text(document))
    if asked.out is None:
        print(_text(document), end="")
    return 0 if environment.all_met(document) else 1


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _parts(scale: float) -> dict[str, Callable[[], dict[str, Any]]]:
    def scaled(number: int) -> int:
        return max(1, round(number * scale))

    plan = f"1x{scaled(5000)},10x{scaled(2000)},1000x{scaled(60)}"
    return {
        "throughput": lambda: throughput.measure(rows=scaled(500_000), plan=plan),
        "memory": lambda: memory.measure(rows=scaled(5_000_000)),
        "latency": lambda: latency.measure(transactions=scaled(1000)),
        "fan-out": lambda: fan_out.measure(consumers=50, transactions=scaled(200), size=100),
    }


if __name__ == "__main__":
    sys.exit(main())
