"""Records per second from a topic into our log, beside what kafka-python reaches when it only reads them.

The pipeline is frozen while the topic is filled, so that it meets the whole backlog; it is timed until the log has
everything. The raw rate is that of a `KafkaConsumer` in a process of its own that polls and counts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from adapters.kafka.broker.client import READING
from benchmarks.kafka.topics import PARTITIONS, declared, fill, settings, topic
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.tools import REPOSITORY
from tests.support.waiting import until

TARGET = 20_000
MASTER = "local[2]"
WARM_UP = 2_000
LONGEST_S = 120


def measure(*, records: int) -> dict[str, Any]:
    with topic() as (broker, name), tempfile.TemporaryDirectory(prefix="changesource-bench-") as folder:
        tables = Path(folder) / "tables.toml"
        tables.write_text(declared())
        given = settings(broker, name, str(tables))
        with SparkServing("kafka", given, Path(folder) / "state", master=MASTER) as endpoint:
            endpoint.start(seconds=SPARK_SECONDS)
            until(endpoint.task, "the resident task", seconds=SPARK_SECONDS)
            fill(broker, name, 0, WARM_UP)
            until(lambda: _reached(endpoint, name) >= WARM_UP, "the first records", seconds=SPARK_SECONDS)
            pipeline = endpoint.pipeline_pids()
            _signal(pipeline, signal.SIGSTOP)
            fill(broker, name, WARM_UP, WARM_UP + records)
            begun = time.perf_counter()
            _signal(pipeline, signal.SIGCONT)
            until(lambda: _reached(endpoint, name) >= WARM_UP + records, "the log", seconds=LONGEST_S)
            ours = records / (time.perf_counter() - begun)
        raw = _raw(broker.bootstrap, name)
    return {"records": records, "ours": round(ours), "kafkaPython": round(raw), "met": ours >= TARGET}


def _reached(endpoint: SparkServing, name: str) -> int:
    """Records in the log, by the offsets of its last transaction."""
    position = endpoint.status()["log"]["position"] or {}
    return sum(position["offsets"][name])


def _raw(bootstrap: str, name: str) -> float:
    command = [sys.executable, "-m", "benchmarks.kafka.rate", bootstrap, name]
    return float(subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout)


def _count(bootstrap: str, name: str) -> float:
    """Records per second that a bare consumer reads."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, max_poll_records=5_000, **READING)
    partitions = [TopicPartition(name, number) for number in range(PARTITIONS)]
    wanted = sum(consumer.end_offsets(partitions).values())
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    count, begun = 0, time.perf_counter()
    while count < wanted:
        count += sum(map(len, consumer.poll(timeout_ms=1000).values()))
    return count / (time.perf_counter() - begun)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


if __name__ == "__main__":
    print(_count(*sys.argv[1:]))
