"""Lakehouse tables behind the official zero-cache: its replica equals each of them, again and again between writes.

One endpoint on Spark, one cache and one configuration for all: Delta with its feed, Parquet, Iceberg, and a query over
two of them.
"""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path

import pytest

from tests.support.fix_zero_cache import zero_caches
from tests.support.lakehouse import Lakehouse
from tests.support.postgres_server import PostgresServer
from tests.support.spark_serving import SPARK_SECONDS, SparkServing

pytestmark = pytest.mark.e2e

SEED = 9
ROUNDS = 7
"""As many as there are operations on a Delta table: each comes once."""
AT_ONCE = 2
"""Writes to each table between two comparisons; the kill loop compares after each."""
FEW_PARTITIONS = ("--conf", "spark.sql.shuffle.partitions=2")


def test_the_replica_equals_the_lakehouse_after_each_few_writes(postgres: PostgresServer, tmp_path: Path) -> None:
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
        rounds = lake.rounds(rng, ROUNDS)
        for number in range(0, ROUNDS, AT_ONCE):
            for operation in chain.from_iterable(rounds[number : number + AT_ONCE]):
                operation(rng)
            lake.wait_until_same(cache.replica)
        assert cache.replica.version() == first, "consumers were reset"
        assert cache.exits == []
        assert len(endpoint.runs) == 1
