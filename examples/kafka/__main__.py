"""Thermometers that report to a Kafka topic: `python -m examples.kafka --bootstrap localhost:9092`.

The topic's records are rows by key, and a tombstone ends one. It is made for the occasion and removed at the end.
"""

import argparse
import asyncio
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from examples.flow import flow
from reference_cache.client import Client
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import schema, table

PLACES = schema([table("reading", {"place": "string", "celsius": "number"}, primary_key="place")], {})
TOO_WARM = Queries(PLACES).table("reading").where("celsius", ">", 8).order_by("place")


@contextmanager
def new_topic(bootstrap: str) -> Iterator[str]:
    """A topic whose last word is the table's name."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    name = f"example-{secrets.token_hex(4)}.reading"
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=1)])
    try:
        admin.wait_for_topics([name], timeout_ms=60_000)
        yield name
    finally:
        admin.delete_topics([name])
        admin.close()


def report(producer: KafkaProducer, topic: str, place: str, celsius: float | None) -> None:
    """Say how warm a place is, or that it is no longer watched."""
    value = None if celsius is None else json.dumps({"celsius": celsius}).encode()
    producer.send(topic, key=json.dumps({"place": place}).encode(), value=value)
    producer.flush()


async def watch(bootstrap: str, topic: str, producer: KafkaProducer) -> None:
    settings = {"bootstrap": bootstrap, "topics": topic, "format": "upsert", "group": ""}
    async with flow("kafka", settings) as url, Client(url, PLACES) as client:
        view = client.query(TOO_WARM)
        await view.complete()
        view.listen(lambda rows, _: print("too warm:", {row["place"]: row["celsius"] for row in rows}))

        print("somebody leaves the fridge open")
        report(producer, topic, "fridge", 11.5)
        await view.until(lambda rows: [row["place"] for row in rows] == ["cellar", "fridge"])

        print("the cellar's thermometer is taken away")
        report(producer, topic, "cellar", None)
        await view.until(lambda rows: [row["place"] for row in rows] == ["fridge"])


def main(bootstrap: str) -> None:
    with new_topic(bootstrap) as topic:
        producer = KafkaProducer(bootstrap_servers=bootstrap)
        for place, celsius in (("fridge", 3.0), ("cellar", 12.0), ("fridge", 4.0)):
            report(producer, topic, place, celsius)
        try:
            asyncio.run(watch(bootstrap, topic, producer))
        finally:
            producer.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--bootstrap", default=os.environ.get("KAFKA_BOOTSTRAP"), help="brokers; default: $KAFKA_BOOTSTRAP"
    )
    given = options.parse_args()
    if not given.bootstrap:
        raise SystemExit("give a broker with --bootstrap or KAFKA_BOOTSTRAP; README.md says how to start one")
    main(given.bootstrap)
