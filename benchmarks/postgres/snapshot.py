"""Initial sync: our rows per second into the spool beside the official Postgres mode's into its replica.

Ours counts from the first rows that are told of to the finished snapshot, two Spark tasks at a time: starting Spark's
Python workers is not part of it, and told beside it (`startSeconds`, from the plan of the parts to the first rows). The
official figure is the total that zero-cache itself reports. Each has the machine to itself.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.postgres.database import database
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until

#: Two slots for the tasks of the snapshot.
MASTER = "local[2]"
_TOTAL = re.compile(r"Synced .* rows .*total: ([0-9.]+) ms")


def measure(*, rows: int) -> dict[str, Any]:
    with database(rows) as (server, url), tempfile.TemporaryDirectory(prefix="changesource-bench-") as name:
        official = _official(server, url, Path(name), rows)
        ours, start = _ours(url, Path(name), rows)
    times = ours / official
    figures = {"rows": rows, "ours": round(ours), "startSeconds": round(start, 1), "official": round(official)}
    return {**figures, "times": round(times, 2), "met": times >= 1}


def _ours(url: str, folder: Path, rows: int) -> tuple[float, float]:
    with SparkServing("postgres", {"dsn": url}, folder / "state", master=MASTER) as endpoint:
        endpoint.launch()
        until(lambda: endpoint.stage().get("state") == "snapshot", "the plan", seconds=SPARK_SECONDS)
        planned = time.perf_counter()
        first = until(lambda: int(endpoint.stage().get("rows") or 0), "the first rows", seconds=SPARK_SECONDS)
        begun = time.perf_counter()
        until(endpoint.ready, "the snapshot", seconds=3600)
        return (rows - first) / (time.perf_counter() - begun), begun - planned


def _official(server: PostgresServer, url: str, folder: Path, rows: int) -> float:
    settings = {"ZERO_UPSTREAM_TYPE": "pg"}
    with ZeroCache(url, server.create_database(), folder, app_id="official", settings=settings) as cache:
        cache.start(seconds=1200)
        found = _TOTAL.search(cache.process.tail(100_000))
        assert found is not None, "zero-cache reported no initial sync"
        return rows / (float(found.group(1)) / 1000)
