"""A record from its producer to its frame at a consumer, on an idle machine: one at a time, with pauses between.

The row carries the time at which it was handed to the producer, on the same clock.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
from kafka import KafkaProducer

from benchmarks.kafka.topics import declared, settings, topic, value
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.waiting import until

P50_MS = 20.0
PAUSE_S = 0.05
WARM_UP = 20


def measure(*, records: int) -> dict[str, Any]:
    with topic() as (broker, name), tempfile.TemporaryDirectory(prefix="changesource-bench-") as folder:
        tables = Path(folder) / "tables.toml"
        tables.write_text(declared())
        with SparkServing("kafka", settings(broker, name, str(tables)), Path(folder) / "state") as endpoint:
            endpoint.start(seconds=SPARK_SECONDS)
            until(endpoint.task, "the resident task", seconds=SPARK_SECONDS)
            version = str(endpoint.status()["log"]["head"])
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0)
            with RawConsumer(endpoint.stream_url, last_watermark=version, keep=True) as consumer:
                delays = [_delay(producer, consumer, name, number) for number in range(WARM_UP + records)]
            producer.close()
    settled = sorted(delays[WARM_UP:])
    p50 = statistics.median(settled)
    return {
        "records": records,
        "p50Ms": round(p50, 2),
        "p90Ms": round(settled[int(len(settled) * 0.9)], 2),
        "p99Ms": round(settled[int(len(settled) * 0.99)], 2),
        "met": p50 < P50_MS,
    }


def _delay(producer: KafkaProducer, consumer: RawConsumer, name: str, number: int) -> float:
    """Milliseconds from the call of the producer to the commit."""
    time.sleep(random.uniform(0.5, 1.5) * PAUSE_S)
    row = {**orjson.loads(value(number)), "title": f"record {number}"}
    begun = time.perf_counter()
    producer.send(name, key=b'{"id":%d}' % number, value=orjson.dumps(row))
    title = row["title"]
    came = False
    while True:
        messages = consumer.messages()
        for message in messages:
            came = came or (message[0] == "data" and message[1].get("new", {}).get("title") == title)
            if came and message[0] == "commit":
                return (time.perf_counter() - begun) * 1000
