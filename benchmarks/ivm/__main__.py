"""`python -m benchmarks.ivm`: ours and, when Node is there, the official engine, on one workload in one run.

Prints a table with the ratios and writes everything measured as JSON, with the commit, the machine and the settings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.ivm import ours
from benchmarks.ivm.official import find_node
from benchmarks.ivm.workload import Size, pipelines, write

Record = dict[str, Any]

OFFICIAL_SOURCES = ("sqlite", "memory")
HEADER = ("source", "pipeline", "hydration s", "official", "ratio", "changes/s", "official", "ratio", "same rows")


def main() -> None:
    options = _options()
    size = Size(**{field.name: getattr(options, field.name) for field in fields(Size)})
    node = None if options.no_official else find_node(options.node_modules)
    if node is None and not options.no_official:
        print("no official engine found (--node-modules DIR); measuring ours alone", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="ivm-benchmark-") as folder:
        workload = Path(folder)
        write(workload, size)
        records: list[Record] = []
        print(_line(HEADER))
        for source, pipeline in product(options.sources, options.pipelines):
            # One beside the other, so that a machine that becomes busy is busy for both.
            both = _best(ours.measure(workload, source, [pipeline], options.repeat, options.transaction))
            if node is not None and source in OFFICIAL_SOURCES:
                both += _best(node.measure(workload, source, [pipeline], options.repeat))
            print(_line(_cells(source, pipeline, *both)), flush=True)
            records += both
    report = {
        "environment": _environment(),
        "settings": asdict(size) | {"repeat": options.repeat, "transaction": options.transaction},
        "records": records,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ivm", description=__doc__)
    for field in fields(Size):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each pipeline; the best of them counts")
    parser.add_argument("--transaction", type=int, default=10, help="changes per transaction on our side")
    parser.add_argument("--pipelines", type=lambda text: text.split(","), default=list(pipelines()))
    parser.add_argument("--sources", type=lambda text: text.split(","), default=["sqlite", "sqlite-written", "memory"])
    parser.add_argument("--node-modules", type=Path, help="folder with the @rocicorp/zero package")
    parser.add_argument("--no-official", action="store_true", help="measure ours alone")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    return parser.parse_args()


def _best(records: list[Record]) -> list[Record]:
    """Per pipeline the fastest hydration and the fastest run of changes: noise only ever slows down."""
    best: dict[str, Record] = {}
    for record in records:
        known = best.setdefault(record["pipeline"], record)
        for name in ("hydrationSeconds", "hydrationCpuSeconds"):
            known[name] = min(known[name], record[name])
        for name in ("changesPerSecond", "changesPerCpuSecond"):
            known[name] = max(known[name], record[name])
    return list(best.values())


def _cells(source: str, pipeline: str, mine: Record, theirs: Record | None = None) -> list[str]:
    """Ours beside theirs; ratios by the wall clock and, in brackets, by processor time."""
    hydration, changes = f"{mine['hydrationSeconds']:.3f}", f"{mine['changesPerSecond']:,.0f}"
    if theirs is None:
        return [source, pipeline, hydration, "", "", changes, "", "", ""]
    same = "yes" if _fingerprint(mine) == _fingerprint(theirs) else "NO"
    official_hydration, official_changes = f"{theirs['hydrationSeconds']:.3f}", f"{theirs['changesPerSecond']:,.0f}"
    hydration_ratio = _ratio(mine, theirs, "hydration{}Seconds")
    changes_ratio = _ratio(mine, theirs, "changesPer{}Second")
    numbers = [hydration, official_hydration, hydration_ratio, changes, official_changes, changes_ratio]
    return [source, pipeline, *numbers, same]


def _line(cells: Sequence[str]) -> str:
    widths = (-16, -22, 12, 10, 15, 11, 10, 15, 10)
    return "".join(
        f"{cell:<{-width}}" if width < 0 else f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)
    )


def _ratio(mine: Record, theirs: Record, name: str) -> str:
    wall, cpu = name.format(""), name.format("Cpu")
    return f"{mine[wall] / theirs[wall]:.2f} ({mine[cpu] / theirs[cpu]:.2f})"


def _fingerprint(record: Record) -> object:
    return record["hydratedRows"], record["rowChanges"]


def _environment() -> Record:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "commit": commit,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }


if __name__ == "__main__":
    main()
