"""Real topics through Spark to the official zero-cache: the replica is what the records leave, at first and live.

One endpoint follows Debezium's topics (with and without embedded schema, with transaction metadata), another plain
upsert topics: one of JSON, one of Avro, by a decoder of the user's, and one that was given more partitions and is given
more while it is followed. What is expected is kept by the test as it writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from kafka import KafkaProducer

from tests.support.fakes import avro
from tests.support.fixtures.zero_cache import MakeZeroCache, zero_caches
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.replica import Replica
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.peers.zero_cache import ZeroCache
from tests.support.tools import REPOSITORY
from tests.support.waiting import until
from tests.support.workloads.debezium import Collection, begin, end, member
from tests.support.workloads.debezium import field as schema_field
from tests.support.workloads.kafka_bank import Bank

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NOTE_COLUMNS = ("id", "body", "due", "price")
ITEM_COLUMNS = ("id", "name", "score", "doc")
ORDER_COLUMNS = ("id", "note", "due", "price", "state", "lines", "is_paid")
PATIENCE_S = 120
Key = TypeVar("Key", int, str)


@dataclass(slots=True)
class Items:
    """An upsert topic, and the rows it leaves."""

    broker: KafkaBroker
    topic: str
    rows: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def put(self, producer: KafkaProducer, number: int, name: str | None, score: float) -> None:
        key = f"k{number}"
        value = {"name": name, "score": score, "doc": {"n": [number]}}
        producer.send(self.topic, key=json.dumps({"id": key}).encode(), value=json.dumps(value).encode())
        self.rows[key] = (key, name, score, json.dumps(value["doc"], separators=(",", ":")))

    def delete(self, producer: KafkaProducer, number: int) -> None:
        producer.send(self.topic, key=json.dumps({"id": f"k{number}"}).encode(), value=None)
        del self.rows[f"k{number}"]


@dataclass(slots=True)
class Grown:
    """An upsert topic whose keys move as it grows, ordered by its records' timestamps; and the rows it leaves."""

    broker: KafkaBroker
    topic: str
    rows: dict[int, tuple[object, ...]] = field(default_factory=dict)
    time_ms: int = 1_700_000_000_000

    def put(self, producer: KafkaProducer, partition: int, number: int, name: str | None) -> None:
        """The newest record of a row; without a name, its tombstone."""
        self.time_ms += 10
        self._send(producer, partition, number, name, self.time_ms)
        if name is None:
            self.rows.pop(number, None)
        else:
            self.rows[number] = (number, name)

    def put_late(self, producer: KafkaProducer, partition: int, number: int) -> None:
        """What an old producer wrote before the newest record, and where the key was then."""
        self._send(producer, partition, number, "late", self.time_ms - 1_000)

    def _send(self, producer: KafkaProducer, partition: int, number: int, name: str | None, time_ms: int) -> None:
        value = None if name is None else json.dumps({"id": number, "name": name}).encode()
        key = str(number).encode()
        producer.send(self.topic, key=key, value=value, partition=partition, timestamp_ms=time_ms)


#: A user's decoder: Avro by the example's, the rest as JSON.
DECODER = """
import json
from avro_registry import AvroRegistry

class Both:
    def __init__(self):
        self._avro = AvroRegistry()

    def key(self, topic, data):
        return self._avro.key(topic, data) if topic.startswith("orders") else json.loads(data)

    def value(self, topic, data):
        return self._avro.value(topic, data) if topic.startswith("orders") else json.loads(data)
"""


@dataclass(slots=True)
class Orders:
    """An upsert topic of Avro records, and the rows it leaves."""

    topic: str
    rows: dict[int, tuple[object, ...]] = field(default_factory=dict)

    def put(self, producer: KafkaProducer, number: int, note: str | None) -> None:
        producer.send(self.topic, key=avro.key(number), value=avro.order(number, note))
        self.rows[number] = (number, note, 19_800 * 86_400_000, 12.34, "DONE", '["a","b"]', 1)

    def delete(self, producer: KafkaProducer, number: int) -> None:
        producer.send(self.topic, key=avro.key(number), value=None)
        del self.rows[number]


@dataclass(slots=True)
class Notes:
    """A topic of Debezium's without schemas, whose columns are declared; each change is a transaction."""

    collection: Collection
    transactions: str
    rows: dict[int, tuple[object, ...]] = field(default_factory=dict)
    count: int = 0

    def put(self, producer: KafkaProducer, number: int, body: str) -> None:
        before = {"id": number} if number in self.rows else None
        after = {"id": number, "body": body, "due": 19_800 + number, "price": f"{number}.50"}
        self._send(producer, "u" if before else "c", before, after)
        self.rows[number] = (number, body, (19_800 + number) * 86_400_000, number + 0.5)

    def delete(self, producer: KafkaProducer, number: int) -> None:
        self._send(producer, "d", {"id": number}, None)
        del self.rows[number]

    def _send(self, producer: KafkaProducer, op: str, before: object, after: object) -> None:
        self.count += 1
        name = f"notes:{self.count}"
        made = self.collection.event(op, before, after, member(name, 1, 1))  # type: ignore[arg-type]
        producer.send(self.transactions, *reversed(begin(name)))
        producer.send(self.collection.topic, key=made.key(), value=made.value())
        producer.send(self.transactions, *reversed(end(name, {self.collection.table: 1})))


@dataclass(slots=True)
class World:
    """Both endpoints with what is behind and before them."""

    broker: KafkaBroker
    items: Items
    orders: Orders
    grown: Grown
    notes: Notes
    bank: Bank
    upsert_endpoint: SparkServing
    upsert: ZeroCache
    debezium: ZeroCache


def settle(replica: Replica, table: str, columns: tuple[str, ...], expected: Mapping[Key, tuple[object, ...]]) -> None:
    """Wait until a table of the replica holds exactly these rows."""
    wanted = [expected[key] for key in sorted(expected)]
    names = ", ".join(f'"{column}"' for column in columns)
    query = f'SELECT {names} FROM "{table}" ORDER BY "{columns[0]}"'
    until(lambda: replica.try_query(query) == wanted, f"{table} as it was written", seconds=PATIENCE_S)


def bank_rows(bank: Bank) -> tuple[Mapping[int, tuple[object, ...]], Mapping[int, tuple[object, ...]]]:
    accounts = {number: tuple(row.values()) for number, row in bank.accounts.items()}
    return accounts, {number: tuple(row.values()) for number, row in bank.ledger.items()}


@pytest.fixture(scope="module")
def world(kafka: KafkaBroker, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("kafka")
    bank = Bank(kafka, 7)
    note = [schema_field("id", int)]
    prefix = bank.transactions.rpartition(".")[0]
    notes = Notes(Collection(f"{prefix}.public.note", note, schemas=False), bank.transactions)
    kafka.create_topic(notes.collection.topic, 2)
    items = Items(kafka, kafka.create_topic(kafka.topic_name("item"), 3))
    orders = Orders(kafka.create_topic(kafka.topic_name("orders"), 2))
    grown = Grown(kafka, kafka.create_topic(kafka.topic_name("grown"), retention_ms="-1"))
    with kafka.producer() as producer:
        for number in range(6):
            grown.put(producer, 0, number, "old")
    kafka.add_partitions(grown.topic, 2)
    with kafka.producer() as producer:
        grown.put(producer, 1, 1, "new")
        grown.put(producer, 1, 2, None)
        grown.put_late(producer, 0, 3)
        grown.put(producer, 1, 3, "moved")
        grown.put_late(producer, 0, 3)
    bank.open_accounts()
    with kafka.producer() as producer:
        for number in range(20):
            bank.wave(producer)
            notes.put(producer, number, f"note {number}")
            items.put(producer, number, f"item {number}", number / 4)
            orders.put(producer, number, f"order {number}")
        for number in range(5):
            notes.put(producer, number, "changed")
            notes.delete(producer, number + 10)
            items.put(producer, number, None, -1)
            items.delete(producer, number + 10)
            orders.put(producer, number, None)
            orders.delete(producer, number + 10)
    with ExitStack() as stack:
        make_cache = stack.enter_context(zero_caches(postgres, folder))
        env = {
            "SCHEMA_REGISTRY_URL": stack.enter_context(avro.serving()),
            "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, folder, avro.DECODER_FOLDER))),
        }
        started = [
            _served(stack, make_cache, folder, "upsert", _upsert_settings(items, orders, grown, folder), env),
            _served(stack, make_cache, folder, "debezium", _debezium_settings(bank, notes, folder), {}),
        ]
        for endpoint, _ in started:
            until(endpoint.ready, f"{endpoint.url} to be ready", seconds=SPARK_SECONDS)
        for _, cache in started:
            cache.launch()
        for _, cache in started:
            cache.wait_until_ready()
        yield World(kafka, items, orders, grown, notes, bank, *started[0], started[1][1])


def _served(
    stack: ExitStack,
    make_cache: MakeZeroCache,
    folder: Path,
    name: str,
    settings: dict[str, str],
    env: dict[str, str],
) -> tuple[SparkServing, ZeroCache]:
    endpoint = stack.enter_context(SparkServing("kafka", settings, folder / name, env=env))
    endpoint.launch()
    stack.callback(lambda: print(endpoint.process.tail(60)))
    return endpoint, make_cache(endpoint.stream_url, app_id=name)


def _upsert_settings(items: Items, orders: Orders, grown: Grown, folder: Path) -> dict[str, str]:
    tables = folder / "items.toml"
    tables.write_text(
        f'[item]\ntopic = "{items.topic}"\n[orders]\ntopic = "{orders.topic}"\n'
        f'[grown]\ntopic = "{grown.topic}"\norder_by = "timestamp"\n'
    )
    (folder / "both_formats.py").write_text(DECODER)
    return {
        "bootstrap": items.broker.bootstrap,
        "topics": f"{items.topic},{orders.topic},{grown.topic}",
        "format": "upsert",
        "decoder": "both_formats:Both",
        "tables": str(tables),
    }


def _debezium_settings(bank: Bank, notes: Notes, folder: Path) -> dict[str, str]:
    tables = folder / "notes.toml"
    tables.write_text(
        '[note]\nkey = ["id"]\ncolumns = { id = "int8", body = "text", due = "date", price = "numeric" }\n'
    )
    topics = f"{bank.settings['topics']},{notes.collection.topic}"
    return {**bank.settings, "topics": topics, "tables": str(tables)}


def test_the_first_sync_of_upsert_topics_is_the_last_value_of_each_key(world: World) -> None:
    settle(world.upsert.replica, "item", ITEM_COLUMNS, dict(world.items.rows))
    settle(world.upsert.replica, "orders", ORDER_COLUMNS, dict(world.orders.rows))
    assert world.upsert.exits == []


def test_what_was_inferred_about_a_table_is_told(world: World) -> None:
    process = world.upsert_endpoint.process
    # One line for each table, in the order in which the broker names their topics.
    line = process.lines[process.wait_for_line("id text (key); name text") - 1]
    assert "inferred the columns of a table; declare them if this is wrong" in line
    assert "score float8 (mixed: float8, int8); doc json" in line


def test_the_first_sync_of_debeziums_topics_is_what_their_changes_leave(world: World) -> None:
    accounts, ledger = bank_rows(world.bank)
    replica = world.debezium.replica
    settle(replica, "account", ("id", "balance", "last"), accounts)
    settle(replica, "ledger", ("id", "source", "target", "amount"), ledger)
    settle(replica, "note", NOTE_COLUMNS, dict(world.notes.rows))
    assert world.debezium.exits == []


def test_records_that_follow_reach_the_replica(world: World) -> None:
    with world.broker.producer() as producer:
        for number in range(30, 40):
            world.bank.wave(producer)
            world.notes.put(producer, number, "live")
            world.items.put(producer, number, "live", 0.5)
            world.orders.put(producer, number, "live")
        world.notes.put(producer, 1, "live again")
        world.notes.delete(producer, 2)
        world.items.put(producer, 1, "live again", 2.0)
        world.items.delete(producer, 2)
        world.orders.delete(producer, 2)
    accounts, ledger = bank_rows(world.bank)
    settle(world.upsert.replica, "item", ITEM_COLUMNS, dict(world.items.rows))
    settle(world.upsert.replica, "orders", ORDER_COLUMNS, dict(world.orders.rows))
    settle(world.debezium.replica, "account", ("id", "balance", "last"), accounts)
    settle(world.debezium.replica, "ledger", ("id", "source", "target", "amount"), ledger)
    settle(world.debezium.replica, "note", NOTE_COLUMNS, dict(world.notes.rows))
    assert (world.upsert.exits, world.debezium.exits) == ([], [])


def test_a_topic_that_grew_and_grows_has_one_row_of_each_key_the_newest(world: World) -> None:
    grown = world.grown
    settle(world.upsert.replica, "grown", ("id", "name"), dict(grown.rows))
    assert grown.rows[1] == (1, "new")
    assert 2 not in grown.rows
    world.broker.add_partitions(grown.topic, 3)
    with world.broker.producer() as producer:
        grown.put(producer, 2, 4, "moved while followed")
        grown.put(producer, 2, 5, None)
        grown.put(producer, 2, 7, "kept with its \0")
    settle(world.upsert.replica, "grown", ("id", "name"), dict(grown.rows))
    with world.broker.producer() as producer:
        for number in (1, 2, 4, 5):
            grown.put_late(producer, 0, number)
        grown.put(producer, 0, 8, "after what came late")
    settle(world.upsert.replica, "grown", ("id", "name"), dict(grown.rows))
    assert world.upsert.exits == []
