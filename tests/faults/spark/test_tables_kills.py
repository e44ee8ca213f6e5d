"""The driver of a lakehouse pipeline dies between versions, while one is read or computed, and before it is durable.

After every write of a series that has all that is done to such tables, the replica of the official zero-cache equals
every table, without one sync from scratch. Knobs: `FAULT_SEED` repeats a run, `FAULT_KILLS` sets how many drivers die.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from adapters.spark_tables.delta.partitions import PARTITION_ROWS
from changesource_sdk.changelog.coordination.consumers import transaction_of
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing, kill
from tests.support.waiting import until
from tests.support.workloads.delta_lake import Lake
from tests.support.workloads.lakehouse import Lakehouse

pytestmark = [pytest.mark.faults, pytest.mark.e2e, pytest.mark.timeout(1800)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
KILLS = min(int(os.environ.get("FAULT_KILLS") or 8), 24)
FEW_PARTITIONS = ("--conf", "spark.sql.shuffle.partitions=2")
BETWEEN, AT_ONCE, DELTA, VERSION = MOMENTS = ("between", "at once", "delta", "version")
"""Before a write; right after it; when files of a new difference appear; when it is whole."""


def _names(state: Path, kind: str) -> set[str]:
    """What the adapter has written so far: folders of deltas, or versions of what is remembered."""
    found = ((root, name) for root, folders, files in os.walk(state) for name in (*folders, *files))
    return {os.path.join(root, name) for root, name in found if name.startswith(f"{kind}-")}


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

        def has_come_or_is_same(has_come: Callable[[], bool]) -> bool:
            return has_come() or not lake.difference(cache.replica)

        def has_other_driver(old: int) -> bool:
            return endpoint.driver() not in (None, old)

        for number, operation in enumerate(series):
            moment, driver = moments.get(number), _driver(endpoint)
            if moment == BETWEEN:
                kill(driver)
            has_come = _has_come(moment or AT_ONCE, state)
            lake.write(operation, rng)
            if moment not in (None, BETWEEN):
                # A write may leave every table as it was: then there is no difference to wait for.
                until(partial(has_come_or_is_same, has_come), "a moment", seconds=SPARK_SECONDS)
                kill(driver)
            if moment is not None:
                print(f"killed {moment}", flush=True)
                until(partial(has_other_driver, driver), "a new driver", seconds=SPARK_SECONDS)
            lake.wait_until_same(cache.replica, seconds=SPARK_SECONDS)
        assert endpoint.status()["pipeline"]["starts"] == KILLS + 1
        assert endpoint.status()["log"]["generation"] == 1, "no kill may cost a sync from scratch"
        assert transaction_of(cache.replica.version()) == endpoint.status()["log"]["snapshot"]
        assert cache.exits == []
        assert endpoint.stop() == 0


SHARES = 6
"""More than tasks run at a time, so that some are finished when the driver dies."""


def _share(number: int) -> pa.Table:
    ids = pa.array(range(number * PARTITION_ROWS, (number + 1) * PARTITION_ROWS), pa.int64())
    return pa.table({"id": ids, "name": ids.cast(pa.string())})


def _inodes(spool: Path) -> set[int]:
    """The parts that are in their place, finished or not noted yet."""
    return {path.stat().st_ino for path in spool.glob("*/part-*.frames")}


def test_a_driver_that_dies_in_the_first_sync_of_a_table_is_replaced_by_one_that_goes_on_with_it(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path / "people", _share(0))
    for number in range(1, SHARES):
        lake.append(_share(number))
    settings = {"tables.people.delta": str(lake.path), "tables.people.key": "id"}
    with SparkServing("spark-tables", settings, tmp_path / "state") as endpoint:
        endpoint.launch()
        until(lambda: int(endpoint.stage().get("done") or 0), "a share that is written", seconds=SPARK_SECONDS)
        kill(_driver(endpoint))
        written = _inodes(tmp_path / "state" / "spool")
        assert not endpoint.ready(), "the table must be large enough to be interrupted"
        lake.delete("id = 0")
        until(endpoint.ready, "the snapshot", seconds=SPARK_SECONDS)
        assert written & _inodes(tmp_path / "state" / "spool"), "a share that was written is not read again"
        with RawConsumer(endpoint.stream_url, keep=True, timeout=SPARK_SECONDS) as consumer:
            assert _people(consumer) == Counter({"insert": SHARES * PARTITION_ROWS})
            snapshot = consumer.counted.watermark
        # The shipped dialect has the snapshot on a connection of its own, and what follows on the next.
        with RawConsumer(endpoint.stream_url, last_watermark=snapshot, keep=True, timeout=SPARK_SECONDS) as consumer:
            assert _people(consumer) == Counter({"delete": 1})
        assert endpoint.status()["log"]["generation"] == 1
        assert endpoint.stop() == 0


def _people(consumer: RawConsumer) -> Counter[str]:
    """The changes of people in the first transaction."""
    counted: Counter[str] = Counter()
    while True:
        # Asked at least once: what came with the handshake is counted already, and waits to be read.
        changes = [message[1] for message in consumer.messages() if message[0] == "data"]
        counted.update(change["tag"] for change in changes if change.get("relation", {}).get("name") == "people")
        if consumer.counted.commits:
            return counted
