"""(a) Endpoint → null consumer, beside the rate at which the official zero-cache ingests the same data.

Initial sync: rows per second from the first message to the last. Transactions, size by size: `null` is a consumer that
was away and catches up from the log, `live` one that waits while the store commits them, so that the whole pipeline is
part of the time. zero-cache is frozen meanwhile, so that each is measured on a machine of its own; then it goes on, and
is timed until it has acknowledged the last one.
"""

from __future__ import annotations

import signal
import time
from itertools import accumulate
from typing import Any

from benchmarks.endpoint.session import Session, session
from benchmarks.endpoint.workload import Class, parse_plan
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until

BEGUN, FINISHED = "initial sync of shard", "finished initial-sync"
TARGET = 10


def measure(*, rows: int, plan: str) -> dict[str, Any]:
    with session(rows=rows, plan=plan) as served, PostgresServer() as postgres:
        version, initial = _null_initial_sync(served, rows)
        with ZeroCache(served.url, postgres.create_database(), served.folder) as cache:
            official = _official_initial_sync(cache, rows)
            transactions = _transactions(served, cache, version, parse_plan(plan))
    return {"initialSync": {"rows": rows} | _compared(initial, official), "transactions": transactions}


def _compared(null: float, official: float) -> dict[str, Any]:
    times = null / official
    return {"null": round(null), "official": round(official), "times": round(times, 1), "met": times >= TARGET}


def _null_initial_sync(served: Session, rows: int) -> tuple[str, float]:
    begun = time.perf_counter()
    with RawConsumer(served.url) as consumer:
        watermark = consumer.receive_commits(1).watermark
    return watermark, rows / (time.perf_counter() - begun)


def _official_initial_sync(cache: ZeroCache, rows: int) -> float:
    process = cache.launch()
    begun = process.time_of(process.wait_for_line(BEGUN, seconds=120))
    finished = process.time_of(process.wait_for_line(FINISHED, seconds=600))
    cache.wait_until_ready()
    return rows / (finished - begun)


def _transactions(served: Session, cache: ZeroCache, version: str, plan: list[Class]) -> list[dict[str, Any]]:
    results = []
    after = version
    for part, end in zip(plan, accumulate(part.count for part in plan), strict=True):
        cache.process.send_to_tree(signal.SIGSTOP)
        last, live = _null_live(served, version, after, part, end)
        null = _null_retained(served, version, after, part)
        begun = time.perf_counter()
        cache.process.send_to_tree(signal.SIGCONT)
        _wait_for_acknowledgement(served, last)
        official = part.changes / (time.perf_counter() - begun)
        results.append({"size": part.size, "count": part.count, "live": round(live)} | _compared(null, official))
        after = last
    return results


def _null_live(served: Session, version: str, after: str, part: Class, end: int) -> tuple[str, float]:
    """Let the store commit a class of transactions; the last watermark, and changes per second at the consumer."""
    with RawConsumer(served.url, last_watermark=after, replica_version=version) as consumer:
        begun = time.perf_counter()
        served.release(end)
        last = consumer.receive_commits(part.count).watermark
        return last, part.changes / (time.perf_counter() - begun)


def _null_retained(served: Session, version: str, after: str, part: Class) -> float:
    begun = time.perf_counter()
    with RawConsumer(served.url, last_watermark=after, replica_version=version) as consumer:
        consumer.receive_commits(part.count)
        return part.changes / (time.perf_counter() - begun)


def _wait_for_acknowledgement(served: Session, watermark: str) -> None:
    def acknowledged() -> bool:
        return any(str(item["acknowledged"] or "") >= watermark for item in served.endpoint.status()["streams"])

    until(acknowledged, f"acknowledgement of {watermark}", seconds=600)
