"""`python -m benchmarks.spark_tables`: run the measurements and write them as JSON, with all they depend on.

Targets: a merge of 1000 rows into a Delta table of 1M rows is at a consumer after less than 1 s (p50, `local[2]`); the
difference of a Parquet table of 1M rows with 1000 changes takes at most 1.5 times the bare join; a snapshot of 10M
rows leaves the memory of endpoint and driver flat; a change feed beside five tables that are looked at by Spark jobs
is at a consumer after less than 1 s (p50). `--scale` shrinks the tables; only a run at scale 1 measures the
targets as they are defined.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.run import run
from benchmarks.spark_tables import beside, difference, merge, snapshot


def _parts(scale: float) -> dict[str, Callable[[], dict[str, Any]]]:
    return {
        "merge": lambda: merge.measure(rows=max(5_000, round(1_000_000 * scale))),
        "beside": lambda: beside.measure(rows=max(5_000, round(100_000 * scale))),
        "difference": lambda: difference.measure(rows=max(5_000, round(1_000_000 * scale))),
        "snapshot": lambda: snapshot.measure(rows=max(20_000, round(10_000_000 * scale))),
    }


if __name__ == "__main__":
    sys.exit(run("spark_tables", __doc__, _parts))
