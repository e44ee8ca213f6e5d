"""Lakehouse tables behind the official zero-cache: its replica equals each of them after each of a series of writes.

One endpoint on Spark, one cache and one configuration for all: Delta with its feed, Parquet, Iceberg, and a query over
two of them. These are the first writes of a series; all of it is written in the fault tests, while drivers die. Then
one table is bad for a while: the others go on, it is warned of everywhere, and it comes back by itself.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.replica import Replica
from tests.support.peers.spark_serving import FEW_PARTITIONS, SPARK_SECONDS, SparkServing
from tests.support.tools import REPOSITORY
from tests.support.waiting import until
from tests.support.workloads.lakehouse import Lakehouse, ParquetItems
from tests.support.workloads.lakehouse_delta import DeltaOrders

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SEED = 708
"""Its first writes are of every table, and among them those that break a Delta feed."""
WRITES = 12


def test_the_replica_equals_the_lakehouse_after_each_write(postgres: PostgresServer, tmp_path: Path) -> None:
    lake = Lakehouse(tmp_path / "lake", SEED)
    rng = random.Random(SEED)
    with (
        SparkServing("spark-tables", lake.settings, tmp_path / "state", options=FEW_PARTITIONS) as endpoint,
        zero_caches(postgres, tmp_path) as make_cache,
    ):
        endpoint.start(seconds=SPARK_SECONDS)
        cache = make_cache(endpoint.stream_url).start()
        assert lake.difference(cache.replica) == ""
        first = cache.replica.version()
        for operation in lake.series(rng)[:WRITES]:
            lake.write(operation, rng)
            lake.wait_until_same(cache.replica)
        _have_a_bad_table_for_a_while(lake, endpoint, cache.replica, rng)
        assert cache.replica.version() == first, "consumers were reset"
        assert cache.exits == []
        assert len(endpoint.runs) == 1


def _have_a_bad_table_for_a_while(
    lake: Lakehouse, endpoint: SparkServing, replica: Replica, rng: random.Random
) -> None:
    orders, items = lake.tables[0], lake.tables[1]
    assert isinstance(orders, DeltaOrders)
    assert isinstance(items, ParquetItems)
    key = items.rows()[0][0]
    before = replica.rows("items", list(items.columns))
    items.append_row(key, "a second row of the key")
    bad = ["duplicate-keys"]
    until(lambda: [each["code"] for each in _current(endpoint, "table items")] == bad, "the warning", seconds=180)
    orders.merge(rng)
    wanted = orders.rows()
    until(lambda: replica.rows("orders", list(orders.columns)) == wanted, "the other table to go on", seconds=180)
    assert replica.rows("items", list(items.columns)) == before
    assert endpoint.stage()["verdict"] == "degraded"
    # The query over the table has each of its rows as often, so it is bad, too.
    (warning,) = _current(endpoint, "table items")
    assert (warning["code"], warning["source"], warning["level"]) == ("duplicate-keys", "spark-tables", "warning")
    assert f"{key} (2 times)" in warning["message"]
    assert warning["fix"]
    assert 0 <= warning["lastSaid"] <= warning["age"]
    shown = subprocess.run(
        [sys.executable, "-m", "changesource_cli", "inspect", f"127.0.0.1:{endpoint.port}"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=True,
    ).stdout
    assert "degraded" in shown
    assert "warning[duplicate-keys] (table items)" in " ".join(shown.split())
    line = next(line for line in endpoint.process.lines if 'code=duplicate-keys where="table items"' in line)
    assert re.match(r"\d\d:\d\d:\d\d warning pipeline: 1 key is used more than once", line), line

    lake.write(items.drop_last_row, rng)
    lake.wait_until_same(replica)
    until(lambda: endpoint.stage()["verdict"] == "ok", "the end of it", seconds=60)
    assert _current(endpoint, "table items") == []


def _current(endpoint: SparkServing, where: str) -> list[dict[str, Any]]:
    return [each for each in endpoint.status()["warnings"] if each["current"] and each["where"] == where]
