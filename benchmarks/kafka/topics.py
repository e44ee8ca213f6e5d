"""The measured topic: rows of eight columns by key, written by processes of their own.

Each writer (`python -m benchmarks.kafka.topics BOOTSTRAP TOPIC FIRST END PARTITION…`) fills some partitions, so that as
many records are written as the machine can, and none of it in the process that measures.

Records travel to the broker compressed and lie there as they are: kafka-python sums up every byte that it sends in
Python, a quarter of a microsecond each, which for a topic of half a gigabyte takes longer than all that is measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
from kafka import KafkaProducer

from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.tools import REPOSITORY

PARTITIONS = 4
WRITERS = 2
BATCH = {"linger_ms": 20, "batch_size": 256 * 1024, "acks": 1, "compression_type": "gzip"}
#: Rows as the adapter is told of them: nothing is inferred in a measurement.
COLUMNS = {
    "id": "int8",
    "title": "text",
    "body": "text",
    "owner": "text",
    "open": "bool",
    "score": "float8",
    "created": "timestamptz",
    "labels": "json",
}


def value(number: int) -> bytes:
    """The row of a key."""
    row = {
        "id": number,
        "title": f"Issue number {number}",
        "body": "Lorem ipsum dolor sit amet, consectetur adipiscing.",
        "owner": f"user-{number % 1000}",
        "open": number % 2 == 0,
        "score": number / 7,
        "created": 1_704_067_200_000 + number,
        "labels": ["bug", "p1"],
    }
    return orjson.dumps(row)


@contextmanager
def topic(partitions: int = PARTITIONS) -> Iterator[tuple[KafkaBroker, str]]:
    """A broker with an empty topic."""
    with KafkaBroker() as broker:
        yield broker, broker.create_topic("issue", partitions, compression_type="uncompressed")


def settings(broker: KafkaBroker, name: str, tables: str) -> dict[str, str]:
    """What the adapter gets; `tables` is a TOML file."""
    return {"bootstrap": broker.bootstrap, "topics": name, "format": "upsert", "tables": tables}


def declared() -> str:
    """The TOML that describes the table."""
    columns = ", ".join(f'{name} = "{kind}"' for name, kind in COLUMNS.items())
    return f'[issue]\nkey = ["id"]\ncolumns = {{ {columns} }}\n'


def fill(broker: KafkaBroker, name: str, first: int, end: int, partitions: int = PARTITIONS) -> None:
    """Write the rows of these keys, spread over the partitions."""
    shares = [range(number, partitions, WRITERS) for number in range(WRITERS)]
    command = [sys.executable, "-m", "benchmarks.kafka.topics", broker.bootstrap, name, str(first), str(end)]
    writers = [subprocess.Popen([*command, *map(str, share)], cwd=REPOSITORY) for share in shares if share]
    for writer in writers:
        assert writer.wait() == 0, "a writer failed"


def _write(bootstrap: str, name: str, first: int, end: int, partitions: list[int]) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, **BATCH)
    for number in range(first, end):
        place = number % PARTITIONS
        if place in partitions:
            producer.send(name, key=b'{"id":%d}' % number, value=value(number), partition=place)
    producer.flush()
    producer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka.topics", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("partition", type=int, nargs="+")
    given = parser.parse_args()
    _write(given.bootstrap, given.topic, given.first, given.end, given.partition)
