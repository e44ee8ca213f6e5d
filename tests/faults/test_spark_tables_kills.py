"""The driver of a lakehouse pipeline dies between versions, while a difference is computed, and before it is durable.

In the end the replica of the official zero-cache equals every table, without one sync from scratch. Knobs: `FAULT_SEED`
repeats a run, `FAULT_KILLS` sets how many drivers die.
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
KILLS = min(int(os.environ.get("FAULT_KILLS") or 9), 30)
MOMENTS = ("between", "delta", "version")


def _names(state: Path, kind: str) -> set[str]:
    """What the adapter has written so far: folders of deltas, or versions of what is remembered."""
    return {str(path) for path in state.rglob(f"{kind}-*")}


def _moment(kind: str, state: Path) -> Callable[[], bool]:
    """Whether the moment to kill has come, after a write: at once, or when files of a new difference appear."""
    before = _names(state, kind)
    return lambda: kind == "between" or bool(_names(state, kind) - before)


def test_whenever_the_driver_dies_the_replica_equals_the_lakehouse(tmp_path: Path, zero_cache: MakeZeroCache) -> None:
    print(f"FAULT_SEED={SEED} FAULT_KILLS={KILLS}")
    lake = Lakehouse(tmp_path / "lake", SEED)
    rng = random.Random(SEED)
    state = tmp_path / "state"
    with SparkServing("spark-tables", lake.settings, state) as endpoint:
        endpoint.start(seconds=SPARK_SECONDS)
        cache = zero_cache(endpoint.stream_url).start()
        for number, operations in enumerate(lake.rounds(rng, KILLS)):
            driver = until(endpoint.driver, "a driver", seconds=SPARK_SECONDS)
            has_come = _moment(MOMENTS[number % len(MOMENTS)], state)
            for operation in operations:
                operation(rng)
            # A round may leave every table as it was: then there is no difference to wait for.
            until(lambda come=has_come: come() or not lake.difference(cache.replica), "a moment", seconds=SPARK_SECONDS)
            kill(driver)
            until(lambda old=driver: endpoint.driver() not in (None, old), "a new driver", seconds=SPARK_SECONDS)
            lake.wait_until_same(cache.replica, seconds=SPARK_SECONDS)
        assert endpoint.status()["log"]["generation"] == 1, "no kill may cost a sync from scratch"
        assert cache.replica.version() == endpoint.status()["log"]["snapshot"]
        assert cache.exits == []
        assert endpoint.stop() == 0
