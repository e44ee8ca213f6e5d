"""A merge of 1000 rows into a Delta table with a change feed: from the writer's commit to the frame at a consumer.

Half of the merged rows are there already and half are new. The clock starts when the merge has returned to its writer:
how long the writer takes is its own affair, and told beside it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.spark_tables.rows import batches, rows
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.spark_serving import LOCAL, SPARK_SECONDS, SparkServing

MERGES, WARM_UP, MERGED = 20, 3, 1000
P50_MS = 1000.0
POLL_S = 0.05


def measure(*, rows: int) -> dict[str, Any]:
    """The delays of some merges."""
    with tempfile.TemporaryDirectory(prefix="changesource-bench-") as name:
        path = f"{name}/issue"
        _make(path, rows)
        settings = {"tables.issue.delta": path, "tables.issue.key": "id", "tables.issue.poll": str(POLL_S)}
        with SparkServing("spark-tables", settings, Path(name) / "state", master=LOCAL) as endpoint:
            endpoint.start(seconds=SPARK_SECONDS * 4)
            head = str(endpoint.status()["log"]["head"])
            with RawConsumer(endpoint.stream_url, last_watermark=head, timeout=600) as consumer:
                timed = [_timed(path, rows, turn, consumer) for turn in range(1, MERGES + WARM_UP + 1)][WARM_UP:]
    delays, merges = [each[0] for each in timed], [each[1] for each in timed]
    p50 = statistics.median(delays)
    return {
        "rows": rows,
        "mergedRows": MERGED,
        "merges": MERGES,
        "p50Ms": round(p50, 1),
        "maxMs": round(max(delays), 1),
        "mergeP50Ms": round(statistics.median(merges), 1),
        "bothP50Ms": round(statistics.median(map(sum, timed)), 1),
        "met": p50 < P50_MS,
    }


def _make(path: str, count: int) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    for number, batch in enumerate(batches(count)):
        write_deltalake(path, batch, mode="append", configuration=feed if number == 0 else None)


def _timed(path: str, count: int, turn: int, consumer: RawConsumer) -> tuple[float, float]:
    """Milliseconds from a merge's return to its frame, and those of the merge itself."""
    half = MERGED // 2
    there = rows((turn * half) % max(1, count - half), half, turn)
    merged = pa.concat_tables([there, rows(count + turn * half, half, turn)])
    began = time.perf_counter()
    merger = DeltaTable(path).merge(merged, "n.id = t.id", source_alias="n", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    committed = time.perf_counter()
    consumer.receive_commits(turn)
    return (time.perf_counter() - committed) * 1000, (committed - began) * 1000
