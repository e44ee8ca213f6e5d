"""`python -m benchmarks.postgres`: run the measurements and write them as JSON, with all they depend on.

Exit code 1 when a target is missed. `--scale` shrinks rows, changes and minutes for a quick look; only a run at scale 1
measures the targets as they are defined.
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
from benchmarks.postgres import changes, live, snapshot


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    parser.add_argument("parts", nargs="*", help="snapshot, changes, live; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of rows, changes and minutes")
    parser.add_argument("--out", type=Path, help="file for the JSON; default standard output")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that contexts end what they started
    parts = _parts(asked.scale)
    unknown = set(asked.parts) - set(parts)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    document: dict[str, Any] = {"benchmark": "postgres", "scale": asked.scale, "environment": environment.describe()}
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
    return {
        "snapshot": lambda: snapshot.measure(rows=max(1, round(1_000_000 * scale))),
        "changes": lambda: changes.measure(changes=max(1000, round(100_000 * scale))),
        "live": lambda: live.measure(seconds=max(4.0, 600 * scale)),
    }


if __name__ == "__main__":
    sys.exit(main())
