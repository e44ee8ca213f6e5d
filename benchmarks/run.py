"""The command line that benchmarks share: which parts, at what scale, and where the JSON goes.

Exit code 1 when a part says that its target was missed, so that a run can guard them.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import environment

Parts = Mapping[str, Callable[[], Any]]


def run(name: str, description: str | None, parts_at: Callable[[float], Parts], **facts: object) -> int:
    """Measure the parts asked for; `parts_at` a scale gives all there are, `facts` stand beside the figures."""
    known = parts_at(1.0)
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(known)}; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the work, for a quick look")
    parser.add_argument("--out", type=Path, help="file for the JSON; default standard output")
    asked = parser.parse_args()
    unknown = set(asked.parts) - set(known)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that contexts end what they started
    document = {"benchmark": name, "scale": asked.scale, "environment": environment.describe(), **facts}
    parts = parts_at(asked.scale)
    for part in asked.parts or parts:
        print(f"measuring {part} …", file=sys.stderr, flush=True)
        document[part] = parts[part]()
        if asked.out is not None:  # after each part: a run of many minutes may be cut short
            asked.out.write_text(_text(document))
    if asked.out is None:
        print(_text(document), end="")
    return 0 if all_met(document) else 1


def _text(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2) + "\n"


def all_met(value: object) -> bool:
    """Whether no part of a document of figures says that its target was missed."""
    match value:
        case dict():
            return value.get("met", True) and all(map(all_met, value.values()))
        case list():
            return all(map(all_met, value))
        case _:
            return True
