"""The examples of Kafka on a real broker: the one that runs by itself, and the decoder of Avro records.

The decoder asks a registry here that answers what the adapter asks of one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.kafka import KafkaAdapter
from changesource_sdk.adapter import Insert
from tests.docs.fences import block
from tests.examples.running import shown_by
from tests.support.fakes.avro import DECODER_FOLDER, Registry, key, order, serving
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.waiting import until


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Registry]]:
    with serving() as address:
        monkeypatch.setenv("SCHEMA_REGISTRY_URL", address)
        monkeypatch.syspath_prepend(str(DECODER_FOLDER))
        yield Registry


def test_avro_records_become_rows_of_typed_columns(kafka: KafkaBroker, registry: type[Registry]) -> None:
    topic = kafka.create_topic(kafka.topic_name("shop.orders"))
    decoder = "avro_registry:AvroRegistry"
    tables = {"orders": {"topic": topic}}
    adapter = KafkaAdapter(kafka.bootstrap, topic, format="upsert", decoder=decoder, tables=tables)
    with kafka.producer() as producer:
        for number, note in ((1, "first"), (-300, None), (1, "second")):
            producer.send(topic, key=key(number), value=order(number, note))
    taken = adapter.snapshot()
    assert taken.tables is not None
    assert {column.name: column.data_type for column in taken.tables[0].columns} == {
        "id": "int8",
        "note": "text",
        "due": "date",
        "price": "numeric",
        "state": "text",
        "lines": "json",
        "sizes": "json",
        "is_paid": "bool",
    }
    (partition,) = taken.partitions
    rows = {row["id"]: row for row in partition.rows()}
    assert {number: row["note"] for number, row in rows.items()} == {1: "second", -300: None}
    assert rows[1]["due"] == 19_800 * 86_400_000
    assert str(rows[1]["price"]) == "12.34"
    assert (rows[1]["state"], rows[1]["lines"], rows[1]["sizes"]) == ("DONE", ["a", "b"], {"xl": 2.5})

    with kafka.producer() as producer:
        producer.send(topic, key=key(2), value=order(2, "live"))
    transaction = next(iter(adapter.changes(taken.position)))
    (change,) = transaction.changes
    assert isinstance(change, Insert)
    assert (change.row["id"], change.row["note"]) == (2, "live")
    adapter.close()
    assert set(registry.asked) == {"/schemas/ids/1", "/schemas/ids/2"}


@pytest.mark.timeout(600)
def test_the_example_shows_what_its_page_says_and_removes_its_topic(kafka: KafkaBroker) -> None:
    shown = shown_by(block("examples/kafka/README.md", "python -m"), KAFKA_BOOTSTRAP=kafka.bootstrap)
    assert shown == block("examples/kafka/README.md", "too warm: ").splitlines()
    with kafka.admin() as admin:
        until(lambda: not any(name.startswith("example-") for name in admin.list_topics()), "the topic to be gone")
