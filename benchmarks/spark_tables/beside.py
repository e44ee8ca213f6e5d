"""A Delta change feed in a source of six tables, five of which are looked at by Spark jobs: from commit to consumer.

Every second the Parquet tables are written to, so that their differences are computed all the while; rows are appended
to the Delta table in between. The clock starts when an append has returned to its writer.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import write_deltalake

from benchmarks.spark_tables.rows import rows
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.spark_serving import LOCAL, SPARK_SECONDS, SparkServing

APPENDS, WARM_UP, APPENDED, OTHERS = 30, 5, 100, 5
P50_MS = 1000.0


def measure(*, rows: int) -> dict[str, Any]:
    """The delays of some appends."""
    with tempfile.TemporaryDirectory(prefix="changesource-bench-") as name:
        folder = Path(name)
        settings = _make(folder, rows)
        with SparkServing("spark-tables", settings, folder / "state", master=LOCAL) as endpoint:
            endpoint.start(seconds=SPARK_SECONDS * 4)
            head = str(endpoint.status()["log"]["head"])
            is_over = threading.Event()
            writer = threading.Thread(target=_keep_writing, args=(folder, rows, is_over))
            writer.start()
            try:
                with RawConsumer(endpoint.stream_url, last_watermark=head, timeout=600, keep=True) as consumer:
                    delays = [_timed(folder / "feed", rows, turn, consumer) for turn in range(APPENDS + WARM_UP)]
            finally:
                is_over.set()
                writer.join()
    delays = sorted(delays[WARM_UP:])
    p50 = statistics.median(delays)
    return {
        "rows": rows,
        "otherTables": OTHERS,
        "appends": APPENDS,
        "p50Ms": round(p50, 1),
        "p90Ms": round(delays[int(len(delays) * 0.9)], 1),
        "maxMs": round(delays[-1], 1),
        "met": p50 < P50_MS,
    }


def _make(folder: Path, count: int) -> dict[str, str]:
    feed = folder / "feed"
    write_deltalake(str(feed), rows(0, count), configuration={"delta.enableChangeDataFeed": "true"})
    settings = {"tables.feed.delta": str(feed), "tables.feed.key": "id"}
    for number in range(OTHERS):
        path = folder / f"other{number}"
        path.mkdir()
        pq.write_table(rows(0, count), path / "first.parquet")
        settings |= {f"tables.other{number}.parquet": str(path), f"tables.other{number}.key": "id"}
    return settings


def _keep_writing(folder: Path, count: int, is_over: threading.Event) -> None:
    turn = 0
    while not is_over.wait(1.0):
        turn += 1
        for number in range(OTHERS):
            path = folder / f"other{number}"
            staged = path / f".staged-{turn}"
            pq.write_table(rows(count + turn * APPENDED, APPENDED), staged)
            staged.rename(path / f"part-{turn}.parquet")


def _timed(path: Path, count: int, turn: int, consumer: RawConsumer) -> float:
    """Milliseconds from an append's return to its last row."""
    first = count + turn * APPENDED
    write_deltalake(str(path), rows(first, APPENDED), mode="append")
    committed = time.perf_counter()
    missing = set(range(first, first + APPENDED))
    while missing:
        for message in consumer.messages():
            if message[0] == "data" and message[1]["tag"] == "insert" and message[1]["relation"]["name"] == "feed":
                missing.discard(message[1]["new"]["id"])
    delay = (time.perf_counter() - committed) * 1000
    time.sleep(0.2)
    return delay
