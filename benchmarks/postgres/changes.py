"""Changes per second: from the slot into our log, beside the rate at which the official zero-cache takes them from it.

The pipeline and zero-cache are frozen while the database commits, so both meet the whole backlog. The pipeline goes on
first and is timed until the log has everything; then zero-cache, until it has acknowledged everything.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.postgres.database import database, position, write
from protocol.watermark import from_int
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until

TARGET = 5.0
SIZES = (10, 1000)
ROWS = 20_000


def measure(*, changes: int) -> dict[str, Any]:
    with database(ROWS) as (server, url), tempfile.TemporaryDirectory(prefix="changesource-bench-") as name:
        folder = Path(name)
        with SparkServing("postgres", {"dsn": url}, folder / "state") as endpoint:
            endpoint.start(seconds=SPARK_SECONDS)
            with ZeroCache(endpoint.stream_url, server.create_database(), folder) as cache:
                cache.start()
                until(lambda: endpoint.stage().get("state") == "tailing", "the stream", seconds=SPARK_SECONDS)
                until(endpoint.task, "the resident task", seconds=SPARK_SECONDS)
                results = [_drain(endpoint, cache, url, changes // size, size) for size in SIZES]
    return {"transactions": results, "met": all(result["times"] >= TARGET for result in results)}


def _drain(endpoint: SparkServing, cache: ZeroCache, url: str, transactions: int, size: int) -> dict[str, Any]:
    pipeline = endpoint.pipeline_pids()
    cache.process.send_to_tree(signal.SIGSTOP)
    _signal(pipeline, signal.SIGSTOP)
    before = _position(endpoint)
    write(url, rows=ROWS, transactions=transactions, size=size)
    end = _last_commit(url, before)
    begun = time.perf_counter()
    _signal(pipeline, signal.SIGCONT)
    until(lambda: _position(endpoint) >= end, "the log", seconds=1200)
    ours = transactions * size / (time.perf_counter() - begun)
    last = from_int(_position(endpoint))
    begun = time.perf_counter()
    cache.process.send_to_tree(signal.SIGCONT)
    until(lambda: _acknowledged(endpoint) >= last, f"acknowledgement of {last}", seconds=3600)
    official = transactions * size / (time.perf_counter() - begun)
    figures = {"size": size, "count": transactions, "ours": round(ours), "official": round(official)}
    return {**figures, "times": round(ours / official, 1)}


def _last_commit(url: str, before: int) -> int:
    """A position that only the last transaction of the backlog reaches: where its commit begins."""
    end = position(url)
    write(url, rows=ROWS, transactions=1, size=1)
    assert end > before
    return end


def _position(endpoint: SparkServing) -> int:
    return int(endpoint.status()["log"]["position"] or 0)


def _acknowledged(endpoint: SparkServing) -> str:
    return max((str(item["acknowledged"] or "") for item in endpoint.status()["streams"]), default="")


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)
