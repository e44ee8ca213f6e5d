"""A first sync of a large Parquet table: rows per second, and the memory of endpoint, driver and JVM on the way.

Memory is flat if endpoint and driver need no more for the last rows than for the first; the JVM's is told only, since
Spark takes what it is given.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.pipeline.spark_lanes import peaks
from benchmarks.spark_tables.rows import batches
from tests.support.peers.spark_serving import LOCAL, SPARK_SECONDS, SparkServing
from tests.support.waiting import until

MOST_GROWTH_MB = 100


def measure(*, rows: int) -> dict[str, Any]:
    """One snapshot."""
    with tempfile.TemporaryDirectory(prefix="changesource-bench-") as name:
        folder = Path(name) / "issue"
        folder.mkdir()
        for number, batch in enumerate(batches(rows)):
            pq.write_table(batch, folder / f"part-{number:03}.parquet")
        settings = {"tables.issue.parquet": str(folder), "tables.issue.key": "id"}
        with SparkServing("spark-tables", settings, Path(name) / "state", master=LOCAL) as endpoint:
            endpoint.launch()
            until(lambda: endpoint.stage(), "the pipeline's first report", seconds=SPARK_SECONDS)
            began = time.perf_counter()
            until(lambda: int(endpoint.stage().get("rows") or 0), "the first rows", seconds=3600)
            first, before = time.perf_counter(), peaks(endpoint)
            until(endpoint.ready, "the snapshot", seconds=7200)
            ended, after = time.perf_counter(), peaks(endpoint)
    growth = max(after[part] - before[part] for part in ("endpoint", "driver"))
    return {
        "rows": rows,
        "rememberSeconds": round(first - began, 1),
        "encodeSeconds": round(ended - first, 1),
        "rowsPerSecond": round(rows / (ended - began)),
        "memoryMBAtFirstRows": before,
        "memoryMBAtEnd": after,
        "growthMB": growth,
        "met": growth <= MOST_GROWTH_MB,
    }
