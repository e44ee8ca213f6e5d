"""Kill loops over the Spark pipeline: task, executor, driver and endpoint die at random under a steady writer.

In the end upstream = log = replica of the official zero-cache, every line once and in order, without one sync from
scratch. Knobs: `FAULT_SEED` repeats a run, `FAULT_KILLS` sets how many processes die for each master and log.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from changesource_sdk.changelog.coordination.consumers import transaction_of
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.spark_serving import CLUSTER, LOCAL, SPARK_SECONDS, SparkServing, kill
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until
from tests.support.workloads.ledger import Audit, Ledger
from tests.support.workloads.sqlite_store import SqliteStore, wait_until_same

pytestmark = [pytest.mark.faults, pytest.mark.e2e, pytest.mark.timeout(1200)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
KILLS = int(os.environ.get("FAULT_KILLS") or 50)
#: How often each part dies in ten kills, and how many of the kills do not wait for the former to be overcome.
DECK = ("task",) * 6 + ("executor",) * 2 + ("driver", "endpoint")
HASTY = 0.2


class Hand:
    """Kills parts of one endpoint. Invariants: every call ends exactly one process by SIGKILL, and each ten of them are
    one shuffled deck, so that every part dies.
    """

    def __init__(self, endpoint: SparkServing, seed: int) -> None:
        self._endpoint = endpoint
        self._random = random.Random(seed)
        self._deck: list[str] = []
        self.kills: Counter[str] = Counter()

    def strike(self) -> None:
        """Let the pipeline get a little further, or not, and kill one of its processes."""
        if not self._deck:
            self._deck = self._random.sample(DECK, len(DECK))
        part = self._deck.pop()
        if self._random.random() > HASTY:
            self._wait_for_progress(self._random.randrange(1, 60))
        self.kills[self._kill(part)] += 1

    def _wait_for_progress(self, lines: int) -> None:
        before = self._sequence()
        until(
            lambda: self._sequence() >= before + lines,
            f"progress after {dict(self.kills)}",
            seconds=SPARK_SECONDS,
            alive=self._check,
        )

    def _check(self) -> None:
        process = self._endpoint.process
        assert process.running, f"serve ended with {process.code}:\n{process.tail()}"

    def _sequence(self) -> int:
        """How many changed keys of the store the log has."""
        return int(self._endpoint.status()["log"]["position"]["seq"])

    def _kill(self, part: str) -> str:
        """Kill this part; what stands in for it where the master has no such part."""
        if part == "endpoint":
            self._endpoint.kill_endpoint_alone()
            self._endpoint.launch()
            until(lambda: self._endpoint.ready(), "the log to be served again", alive=self._check)
            return part
        if part == "executor" and (found := self._endpoint.executors()):
            kill(self._random.choice(found))
            return part
        if part == "driver":
            kill(self._wait_for(self._endpoint.driver))
            return part
        kill(self._wait_for(self._endpoint.task))
        return "task"

    def _wait_for(self, part: Callable[[], int | None]) -> int:
        return until(part, "a process to kill", seconds=SPARK_SECONDS, alive=self._check) or 0


def _audit(endpoint: SparkServing, lines: int) -> None:
    """Read all that the endpoint serves a newcomer: the snapshot and everything after it."""
    audit = Audit()
    with RawConsumer(endpoint.stream_url, keep=True) as consumer:
        while not audit.watermark:
            audit.read(consumer.messages())
    with RawConsumer(endpoint.stream_url, last_watermark=audit.watermark, keep=True) as consumer:
        while audit.lines < lines:
            audit.read(consumer.messages())
    assert audit.lines == lines
    # An initial sync at the head has a version of its own, between the head and the next transaction.
    assert transaction_of(audit.watermark) == endpoint.status()["log"]["head"]


def _assert_equal_everywhere(store: SqliteStore, ledger: Ledger, endpoint: SparkServing, cache: ZeroCache) -> None:
    wait_until_same(store, cache.replica, seconds=SPARK_SECONDS)
    assert cache.replica.query("SELECT count(*), max(id) FROM ledger") == [(ledger.lines, ledger.lines)]
    _audit(endpoint, ledger.lines)
    log = endpoint.status()["log"]
    assert log["generation"] == 1, "no kill may cost a sync from scratch"
    assert transaction_of(cache.replica.version()) == log["snapshot"]
    assert cache.replica.watermark() == log["head"]
    assert cache.exits == []


@pytest.mark.parametrize("log", ["sqlite", "postgres"])
@pytest.mark.parametrize("master", [LOCAL, CLUSTER])
def test_whatever_is_killed_every_line_arrives_once_and_in_order(
    master: str, log: str, tmp_path: Path, postgres: PostgresServer, zero_cache: MakeZeroCache
) -> None:
    print(f"FAULT_SEED={SEED} FAULT_KILLS={KILLS}")
    store = SqliteStore(tmp_path / "app.db")
    ledger = Ledger(store, SEED)
    options = ("--log", postgres.create_database("log")) if log == "postgres" else ()
    settings = {"path": str(store.path)}
    with SparkServing("sqlite", settings, tmp_path / "state", master=master, options=options) as endpoint:
        endpoint.start(seconds=SPARK_SECONDS)
        cache = zero_cache(endpoint.stream_url).start()
        hand = Hand(endpoint, SEED)
        with ledger:
            for _ in range(KILLS):
                hand.strike()
        _assert_equal_everywhere(store, ledger, endpoint, cache)
        print(f"{master}, {log} log: {ledger.lines} lines arrived, killed {dict(hand.kills)}")
        assert hand.kills.total() == KILLS
        assert endpoint.stop() == 0
