"""Processes of a running snapshot and a running tail killed on purpose: executors of a cluster, and the driver."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.spark_serving import CLUSTER, LOCAL, SPARK_SECONDS, SparkServing, kill
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
ADAPTER = "tests.changesource_sdk.pipeline.spark.stores:Resumable"


def _pids(folder: Path, first: int) -> list[int]:
    """The processes that began to read this partition, one after the other."""
    file = folder / f"read-{first}"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def inserted(consumer: RawConsumer, count: int) -> Counter[int]:
    """The items inserted in what comes next, until there are so many."""
    seen: Counter[int] = Counter()
    while seen.total() < count:
        changes = [message[1] for message in consumer.messages() if message[0] == "data"]
        seen.update(change["new"]["id"] for change in changes if change["tag"] == "insert" and _is_item(change))
    return seen


def _is_item(change: dict[str, dict[str, str]]) -> bool:
    return change["relation"]["name"] == "item"


def commit(folder: Path, *numbers: int) -> None:
    """One transaction each."""
    with (folder / "transactions").open("a") as file:
        file.writelines(f"{number}\n" for number in numbers)


def test_an_executor_killed_in_the_snapshot_and_in_the_stream_costs_nothing(tmp_path: Path) -> None:
    with SparkServing(ADAPTER, {"folder": str(tmp_path)}, tmp_path / "state", master=CLUSTER) as endpoint:
        endpoint.launch()
        (reader,) = until(lambda: _pids(tmp_path, 2000), "a partition being read", seconds=SPARK_SECONDS)
        executor = endpoint.executor_of(reader)
        assert executor is not None
        kill(executor)
        until(lambda: len(_pids(tmp_path, 2000)) == 2, "the partition read by another", seconds=SPARK_SECONDS)
        (tmp_path / "go").touch()
        until(endpoint.ready, "the snapshot", seconds=SPARK_SECONDS)
        with RawConsumer(endpoint.stream_url, keep=True) as consumer:
            assert inserted(consumer, 4000) == Counter(range(4000))
            version = consumer.receive_commits(1).watermark

        with RawConsumer(endpoint.stream_url, last_watermark=version, keep=True, timeout=SPARK_SECONDS) as consumer:
            commit(tmp_path, 5000, 5001)
            assert inserted(consumer, 2) == Counter([5000, 5001])
            task = until(endpoint.task, "the resident task", seconds=SPARK_SECONDS)
            holder = endpoint.executor_of(task or 0)
            assert holder is not None
            kill(holder)
            commit(tmp_path, 5002, 5003)
            assert inserted(consumer, 2) == Counter([5002, 5003])
            until(lambda: endpoint.task() not in (None, task), "another task", seconds=SPARK_SECONDS)
            until(lambda: task not in endpoint.process.tree(), "the orphan to end", seconds=SPARK_SECONDS)
            commit(tmp_path, 5004)
            assert inserted(consumer, 1) == Counter([5004])
        assert endpoint.status()["log"]["generation"] == 1
        assert endpoint.status()["pipeline"]["starts"] == 1, "the driver lives through it"
        assert endpoint.stop() == 0


def test_a_driver_killed_in_the_snapshot_is_replaced_by_one_that_goes_on_with_it(tmp_path: Path) -> None:
    with SparkServing(ADAPTER, {"folder": str(tmp_path)}, tmp_path / "state", master=LOCAL) as endpoint:
        endpoint.launch()
        until(lambda: _pids(tmp_path, 3000), "the last partitions being read", seconds=SPARK_SECONDS)
        kill(endpoint.driver() or 0)
        (tmp_path / "go").touch()
        until(endpoint.ready, "the snapshot", seconds=SPARK_SECONDS)
        with RawConsumer(endpoint.stream_url, keep=True) as consumer:
            assert inserted(consumer, 4000) == Counter(range(4000))
        assert len(_pids(tmp_path, 0)) == len(_pids(tmp_path, 1000)) == 1, "finished parts are not read again"
        assert (tmp_path / "snapshots").read_text() == "taken\n"
        assert endpoint.stop() == 0
