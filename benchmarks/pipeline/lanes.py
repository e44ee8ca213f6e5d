"""Latency of the lanes: a commit in SQLite to the row being readable in the change log.

Run it with `python -m benchmarks.pipeline.lanes`.

The same rows pass a mapping written as a function (resident lane) and as Spark SQL (micro-batch lane). One row every
`--interval` seconds, for `--seconds` at most; the first half warms up and is not counted. A row carries the time of its
commit, and a reader in this process is woken by the log as an endpoint is.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

from benchmarks import environment
from changesource_sdk.adapter import Row
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.runner import SparkRunner
from changesource_sdk.pipeline.spark.session import SparkSettings, start_session
from protocol.framing import unframe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 120.0
LEAST_ROWS = 20
LANES: dict[str, dict[str, object]] = {
    "resident": {"columns": {"label": {"function": "benchmarks.pipeline.lanes:label", "type": "text"}}},
    "micro-batch": {"columns": {"label": {"sql": "upper(title)", "type": "text"}}},
}


def label(row: Row) -> str:
    """The mapping as a function."""
    return str(row["title"]).upper()


@contextmanager
def following(session: SparkSession, folder: Path, mapping: dict[str, object]) -> Iterator[SqliteLogStore]:
    """A pipeline over the database in `folder`, until the end of the block."""
    settings = {"path": str(folder / "store.db")}
    source = SourceSpec("adapters.sqlite:SqliteAdapter", settings, mapping={"issue": mapping})
    store = SqliteLogStore(folder / "state")
    runner = SparkRunner(session, source, store)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield store
    finally:
        runner.stop.set()
        thread.join(PATIENCE_S)


def measure(
    session: SparkSession, folder: Path, mapping: dict[str, object], rows: int, interval: float, seconds: float
) -> list[float]:
    """Milliseconds from commit to log, one per row. On a slow machine the time is over before the rows are."""
    database = sqlite3.connect(folder / "store.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE issue (id INTEGER PRIMARY KEY, title TEXT, at REAL)")
    found: list[float] = []
    with following(session, folder, mapping) as store:
        listener, reader = store.listen(), store.open_log()
        deadline = time.monotonic() + PATIENCE_S
        while reader.state().generation == 0:
            assert time.monotonic() < deadline, "no snapshot"
            listener.wait(0.1)
        head, began = reader.state().head, time.monotonic()
        for number in range(rows):
            committed = time.monotonic()
            if number >= LEAST_ROWS and committed > began + seconds:
                break
            database.execute("INSERT INTO issue VALUES (?, 'a title', ?)", (number, time.time() * 1000))
            while not (read := reader.read_after(head, 1 << 20)):
                assert time.monotonic() < committed + PATIENCE_S, "the row did not arrive"
                listener.wait(1.0)
            arrived = time.time() * 1000
            payloads = [json.loads(payload) for item in read for chunk in item.chunks() for payload in unframe(chunk)]
            found += [arrived - payload[1]["new"]["at"] for payload in payloads if payload[1].get("tag") == "insert"]
            head = read[-1].watermark
            time.sleep(max(0.0, committed + interval - time.monotonic()))
        listener.close()
        reader.close()
    database.close()
    return found


def summary(latencies: list[float]) -> dict[str, object]:
    """Percentiles of the second half."""
    counted = latencies[len(latencies) // 2 :]
    steps = quantiles(counted, n=100, method="inclusive")
    return {
        "rows": len(counted),
        "p50Ms": round(steps[49], 1),
        "p90Ms": round(steps[89], 1),
        "p99Ms": round(steps[98], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.lanes", description=__doc__)
    parser.add_argument("--rows", type=int, default=200, help="rows per lane")
    parser.add_argument("--seconds", type=float, default=45.0, help="most seconds per lane, but for starting")
    parser.add_argument("--interval", type=float, default=0.25, help="seconds between commits")
    options = parser.parse_args()
    session = start_session(SparkSettings("local[2]", {"spark.ui.enabled": "false"}))
    figures = {}
    for lane, mapping in LANES.items():
        with tempfile.TemporaryDirectory() as folder:
            chosen = (options.rows, options.interval, options.seconds)
            figures[lane] = summary(measure(session, Path(folder), mapping, *chosen))
        print(f"{lane}: {figures[lane]}", file=sys.stderr)
    session.stop()
    print(json.dumps({"benchmark": "lanes", "environment": environment.describe(), "commit to log": figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
