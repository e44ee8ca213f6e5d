"""A cluster whose hosts share nothing but the log's database and a spool by URI: snapshot, tail and compaction."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.spark.test_executors import commit, inserted
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.serving import Serving
from tests.support.peers.spark_serving import CLUSTER, SPARK_SECONDS, SparkServing
from tests.support.waiting import until

ADAPTER = "tests.changesource_sdk.pipeline.spark.stores:NumbersAdapter"


def _snapshot_of(endpoint: Serving) -> Counter[int]:
    """The items of the snapshot that a newcomer gets."""
    messages: list[Any] = []
    with RawConsumer(endpoint.stream_url, keep=True) as consumer:
        while "commit" not in {message[0] for message in messages}:
            messages += consumer.messages()
    inserts = [message[1] for message in messages if message[0] == "data" and message[1]["tag"] == "insert"]
    return Counter(insert["new"]["id"] for insert in inserts if insert["relation"]["name"] == "item")


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_tasks_put_their_parts_into_the_spool_and_endpoints_fetch_them(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    spool = tmp_path / "spool"
    log = ("--log", postgres.create_database("log"), "--spool", spool.as_uri())
    settings, state = {"folder": str(tmp_path)}, tmp_path / "pipeline"
    pipeline = SparkServing(ADAPTER, settings, state, master=CLUSTER, options=(*log, "--compact-after", "20tx"))
    with (
        pipeline,
        Serving(ADAPTER, settings, tmp_path / "endpoint", options=(*log, "--role", "endpoint")) as endpoint,
    ):
        pipeline.launch()
        endpoint.start(seconds=SPARK_SECONDS)
        first = endpoint.status()["log"]["snapshot"]
        parts = {path.name for path in (spool / "changesource" / first).iterdir()}
        assert {f"part-0000{number}.frames" for number in range(1, 5)} <= parts
        assert not list((state / "spool").glob("*/part-00001.frames")), "rows never pass the driver's disk"
        with RawConsumer(endpoint.stream_url, keep=True) as consumer:
            assert inserted(consumer, 4000) == Counter(range(4000))

        # A log that is a trifle beside its snapshot is not compacted.
        commit(tmp_path, *range(5000, 6000))
        until(lambda: endpoint.status()["log"]["snapshot"] > first, "a compacted snapshot", seconds=SPARK_SECONDS)
        assert endpoint.status()["stages"]["compaction"]["verdict"] == "ok"
        held = _snapshot_of(endpoint)
        late = {number for number in held if number >= 4000}
        assert held == Counter([*range(4000), *late])
        assert late == set(range(5000, 5000 + len(late))) != set()
        assert os.listdir(spool / "changesource") == [endpoint.status()["log"]["snapshot"]]
        assert (endpoint.stop(), pipeline.stop()) == (0, 0)
