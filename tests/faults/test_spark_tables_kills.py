"""The driver of a lakehouse pipeline dies between versions, while one is read or computed, and before it is durable.

After every write of a series that has all that is done to such tables, the replica of the official zero-cache equals
every table, without one sync from scratch. Knobs: `FAULT_SEED` repeats a run, `FAULT_KILLS` sets how many drivers die.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fix_zero_cache import MakeZeroCache
from tests.support.lakehouse import Lakehouse
from tests.support.spark_serving import SPARK_SECONDS, SparkServing, kill
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.e2e, pytest.mark.timeout(1800)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
KILLS = min(int(os.environ.get("FAULT_KILLS") or 8), 24)
FEW_PARTITIONS = ("--conf", "spark.sql.shuffle.partitions=2")
BETWEEN, AT_ONCE, DELTA, VERSION = MOMENTS = ("between", "at once", "delta", "version")
"""Before a write; right after it; when files of a new difference appear; when it is whole."""


def _names(state: Path, kind: str) -> set[str]:
    """What the adapter has written so far: folders of deltas, or versions of what is remembered."""
    return {str(path) for path in state.rglob(f"{kind}-*")}


def _has_come(moment: str, state: Path) -> Callable[[], bool]:
    """Whether the moment to kill has come, counted from now."""
    before = _names(state, moment)
    return lambda: moment in (BETWEEN, AT_ONCE) or bool(_names(state, moment) - before)


def _driver(endpoint: SparkServing) -> int:
    return until(endpoint.driver, "a driver", seconds=SPARK_SECONDS) or 0


def test_whenever_the_driver_dies_the_replica_equals_the_lakehouse(tmp_path: Path, zero_cache: MakeZeroCache) -> None:
    print(f"FAULT_SEED={SEED} FAULT_KILLS={KILLS}")
    lake, state, rng = Lakehouse(tmp_path / "lake", SEED), tmp_path / "state", random.Random(SEED)
    series = lake.series(rng)
    moments = dict(zip(rng.sample(range(len(series)), k=KILLS), MOMENTS * KILLS, strict=False))
    with SparkServing("spark-tables", lake.settings, state, options=FEW_PARTITIONS) as endpoint:
        endpoint.start(seconds=SPARK_SECONDS)
        cache = zero_cache(endpoint.stream_url).start()
        for number, operation in enumerate(series):
            moment, driver = moments.get(number), _driver(endpoint)
            if moment == BETWEEN:
                kill(driver)
            has_come = _has_come(moment or AT_ONCE, state)
            lake.write(operation, rng)
            if moment not in (None, BETWEEN):
                # A write may leave every table as it was: then there is no difference to wait for.
                until(
                    lambda come=has_come: come() or not lake.difference(cache.replica),
                    "a moment",
                    seconds=SPARK_SECONDS,
                )
                kill(driver)
            if moment is not None:
                print(f"killed {moment}", flush=True)
                until(lambda old=driver: endpoint.driver() not in (None, old), "a new driver", seconds=SPARK_SECONDS)
            lake.wait_until_same(cache.replica, seconds=SPARK_SECONDS)
        assert endpoint.status()["pipeline"]["starts"] == KILLS + 1
        assert endpoint.status()["log"]["generation"] == 1, "no kill may cost a sync from scratch"
        assert cache.replica.version() == endpoint.status()["log"]["snapshot"]
        assert cache.exits == []
        assert endpoint.stop() == 0
