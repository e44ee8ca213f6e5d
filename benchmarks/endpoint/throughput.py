"""(a) Endpoint → null consumer, beside the rate at which the official zero-cache ingests the same data.

Initial sync: frames of the snapshot per second. Transactions of each size: frames of the retained log per
second, as a consumer that was away gets them, and of the live stream, where the pipeline that produces them is
part of the time. zero-cache is timed from the first message of the initial sync to its end, and then from
acknowledgement to acknowledgement at the class borders.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from benchmarks.endpoint.session import Session, session
from benchmarks.endpoint.workload import Class, parse_plan
from tests.support.postgres_server import PostgresServer
from tests.support.raw_consumer import RawConsumer
from tests.support.waiting import until
from tests.support.zero_cache import ZeroCache

BEGUN, FINISHED, CONNECTED = "initial sync of shard", "finished initial-sync", "&lastWatermark="
TARGET = 10


@dataclass(frozen=True, slots=True)
class Border:
    """A class of transactions, the watermark of its last one, and changes per second at the null consumer."""

    part: Class
    last: str
    live: float
    retained: float

    @property
    def changes(self) -> int:
        return self.part.size * self.part.count


def measure(*, rows: int, plan: str) -> dict[str, Any]:
    with session(rows=rows, plan=plan) as served, PostgresServer() as postgres:
        version, initial = _null_initial_sync(served)
        borders = _null_transactions(served, version, parse_plan(plan))
        with ZeroCache(served.url, postgres.create_database(), served.folder) as cache:
            official_initial, official = _official(served, cache, rows, borders)
    return {
        "initialSync": {"rows": rows} | _compared(initial, official_initial),
        "transactions": [
            {"size": border.part.size, "count": border.part.count, "live": round(border.live)}
            | _compared(border.retained, theirs)
            for border, theirs in zip(borders, official, strict=True)
        ],
    }


def _compared(null: float, official: float) -> dict[str, Any]:
    times = null / official
    return {"null": round(null), "official": round(official), "times": round(times, 1), "met": times >= TARGET}


def _null_initial_sync(served: Session) -> tuple[str, float]:
    begun = time.perf_counter()
    with RawConsumer(served.url) as consumer:
        counted = consumer.receive_commits(1)
    return counted.watermark, counted.frames / (time.perf_counter() - begun)


def _null_transactions(served: Session, version: str, classes: list[Class]) -> list[Border]:
    """Release one class after the other to a waiting consumer, then let another one catch up with it."""
    borders: list[Border] = []
    after = version
    for part, end in zip(classes, accumulate(part.count for part in classes), strict=True):
        changes = part.size * part.count
        with RawConsumer(served.url, last_watermark=after, replica_version=version) as consumer:
            begun = time.perf_counter()
            served.release(end)
            last = consumer.receive_commits(part.count).watermark
            live = changes / (time.perf_counter() - begun)
        begun = time.perf_counter()
        with RawConsumer(served.url, last_watermark=after, replica_version=version) as consumer:
            consumer.receive_commits(part.count)
            retained = changes / (time.perf_counter() - begun)
        borders.append(Border(part, last, live, retained))
        after = last
    return borders


def _official(served: Session, cache: ZeroCache, rows: int, borders: list[Border]) -> tuple[float, list[float]]:
    process = cache.launch()
    begun = process.time_of(process.wait_for_line(BEGUN, seconds=120))
    finished = process.time_of(process.wait_for_line(FINISHED, seconds=600))
    moments = [process.time_of(process.wait_for_line(CONNECTED, seconds=120))]
    moments += [_wait_for_ack(served, border.last) for border in borders]
    rates = [border.changes / (end - start) for border, (start, end) in zip(borders, pairwise(moments), strict=True)]
    return rows / (finished - begun), rates


def _wait_for_ack(served: Session, watermark: str) -> float:
    def acknowledged() -> bool:
        return any(str(item["acknowledged"] or "") >= watermark for item in served.endpoint.status()["streams"])

    until(acknowledged, f"acknowledgement of {watermark}", seconds=600)
    return time.monotonic()
