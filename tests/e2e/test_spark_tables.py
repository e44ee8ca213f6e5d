"""Lakehouse tables behind the official zero-cache: its replica equals each of them after each of a series of writes.

One endpoint on Spark, one cache and one configuration for all: Delta with its feed, Parquet, Iceberg, and a query over
two of them. These are the first writes of a series; all of it is written in the fault tests, while drivers die.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.fix_zero_cache import zero_caches
from tests.support.lakehouse import Lakehouse
from tests.support.postgres_server import PostgresServer
from tests.support.spark_serving import FEW_PARTITIONS, SPARK_SECONDS, SparkServing

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
        assert cache.replica.version() == first, "consumers were reset"
        assert cache.exits == []
        assert len(endpoint.runs) == 1
