"""A steady load for minutes: how long a commit takes to its frame at a consumer, and how much WAL the slot holds back.

Delays count from the commit time that Postgres itself records, on the same clock. The slot is looked at every second.
Retained WAL is bounded if it stays under `WAL_TARGET_MB` all the time: a slot lets go of whole segments, and only after
the server has written down which transactions are running, every 15 seconds.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.postgres.database import database, writer
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.waiting import until

ROWS = 10_000
RATE = 500.0
P50_MS, WAL_TARGET_MB = 10.0, 64
WARM_UP_S = 2.0
_RETAINED = """SELECT pg_current_wal_lsn() - restart_lsn, pg_current_wal_lsn() - confirmed_flush_lsn
FROM pg_replication_slots WHERE NOT temporary"""


def measure(*, seconds: float) -> dict[str, Any]:
    with (
        database(ROWS) as (_, url),
        tempfile.TemporaryDirectory(prefix="changesource-bench-") as name,
        SparkServing("postgres", {"dsn": url}, Path(name) / "state") as endpoint,
    ):
        endpoint.start(seconds=SPARK_SECONDS)
        until(endpoint.task, "the resident task", seconds=SPARK_SECONDS)
        version = str(endpoint.status()["log"]["head"])
        with RawConsumer(endpoint.stream_url, last_watermark=version, keep=True) as consumer:
            return _run(url, consumer, seconds)


def _run(url: str, consumer: RawConsumer, seconds: float) -> dict[str, Any]:
    watch = _SlotWatch(url)
    watch.start()
    with writer(url, rows=ROWS, rate=RATE, seconds=seconds):
        delays = _delays(consumer, round(RATE * seconds))
    watch.stop()
    settled = sorted(delays[round(RATE * min(WARM_UP_S, seconds / 4)) :])
    p50 = statistics.median(settled)
    latency = {
        "transactionsPerSecond": RATE,
        "p50Ms": round(p50, 2),
        "p90Ms": round(settled[int(len(settled) * 0.9)], 2),
        "p99Ms": round(settled[int(len(settled) * 0.99)], 2),
        "met": p50 < P50_MS,
    }
    return {"seconds": seconds, "latency": latency, "wal": watch.figures()}


def _delays(consumer: RawConsumer, number: int) -> list[float]:
    """Milliseconds from the commit of each transaction to its last frame."""
    delays: list[float] = []
    while len(delays) < number:
        messages = consumer.messages()
        now = time.time() * 1000
        delays += [now - message[1]["commitTimeMs"] for message in messages if message[0] == "commit"]
    return delays


class _SlotWatch(threading.Thread):
    """Looks at the slot every second until stopped."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._stopped = threading.Event()
        self._retained: list[tuple[int, int]] = []

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as db:
            while not self._stopped.wait(1):
                found = db.execute(_RETAINED).fetchone()
                if found is not None:
                    self._retained.append((int(found[0]), int(found[1])))

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def figures(self) -> dict[str, Any]:
        """The most and the last that was held back, in megabytes; `unconfirmed` is what the log had not yet."""
        kept = [size / 2**20 for size, _ in self._retained]
        unconfirmed = [size / 2**20 for _, size in self._retained]
        return {
            "retainedMaxMB": round(max(kept), 1),
            "retainedLastMB": round(kept[-1], 1),
            "unconfirmedMaxMB": round(max(unconfirmed), 1),
            "met": max(kept) < WAL_TARGET_MB,
        }
