"""(e) Time to the first correct state of a cache that begins when a long log follows the snapshot.

The initial sync shows the log's head: snapshot and log as one transaction. Beside it, in the same run, what a snapshot
followed by its transactions costs: the initial sync of a cache that began before the transactions, and the time that
the same cache needs for all of them afterwards. Bytes are what the endpoint sent, counted by a null consumer.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.endpoint.session import Session, session
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until

LONGEST = 3600.0


def measure(*, rows: int, transactions: int) -> dict[str, Any]:
    with session(rows=rows, plan=f"1x{transactions}") as served, PostgresServer() as postgres:
        early = RawConsumer(served.url)
        snapshot = early.receive_commits(1)
        early.close()
        with ZeroCache(served.url, postgres.create_database(), served.folder) as cache:
            began_before = _seconds_to_ready(cache)
            cache.stop()
            served.release(transactions)
            until(lambda: served.position() == transactions, "the log", seconds=LONGEST)
            head = served.head()
            then_log = began_before + _seconds_to(cache, head)
        with ZeroCache(served.url, postgres.create_database(), served.folder, app_id="later") as later:
            folded = _seconds_to(later, head)
        null = _null(served, snapshot.watermark, head)
    size = {"folded": null["folded"]["bytes"], "snapshotThenLog": snapshot.size + null["log"]["bytes"]}
    return {
        "rows": rows,
        "transactions": transactions,
        "officialSeconds": {"folded": round(folded, 1), "snapshotThenLog": round(then_log, 1)},
        "nullSeconds": {name: part["seconds"] for name, part in null.items()},
        "bytes": size,
        "times": round(then_log / folded, 1),
        "met": folded <= then_log,
    }


def _seconds_to_ready(cache: ZeroCache) -> float:
    begun = time.perf_counter()
    cache.start(seconds=LONGEST)
    return time.perf_counter() - begun


def _seconds_to(cache: ZeroCache, head: str) -> float:
    """From the start of a cache until its replica has everything up to `head`."""
    begun = time.perf_counter()
    cache.start(seconds=LONGEST)
    cache.replica.wait_for_watermark(head, seconds=LONGEST)
    return time.perf_counter() - begun


def _null(served: Session, version: str, head: str) -> dict[str, dict[str, float]]:
    """Seconds and bytes of one initial sync at the head, and of the log alone, to a consumer that only counts."""
    begun = time.perf_counter()
    with RawConsumer(served.url, app_id="counts") as consumer:
        folded = consumer.receive_commits(1)
    folded_seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    with RawConsumer(served.url, last_watermark=version) as consumer:
        log = consumer.receive_up_to(head)
    return {
        "folded": {"seconds": round(folded_seconds, 2), "bytes": folded.size},
        "log": {"seconds": round(time.perf_counter() - begun, 2), "bytes": log.size},
    }
