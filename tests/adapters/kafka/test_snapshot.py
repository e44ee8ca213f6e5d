"""Snapshots of real topics: what is folded, what is left to the tail, and what stops them."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from adapters.kafka import KafkaAdapter
from adapters.kafka.position import KafkaPosition
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.snapshot import take_snapshot
from changesource_sdk.adapter import Row, Snapshot
from changesource_sdk.errors import AdapterError
from changesource_sdk.pipeline.mapped import MappedAdapter
from changesource_sdk.pipeline.mapping.declare import Function, MappedColumn, TableMapping
from changesource_sdk.pipeline.snapshot.take import PartTask, write_partition
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.workloads.debezium import Collection, begin, end, field, member

ITEM = (field("id", int, optional=False), field("name", str))
Record = tuple[object, object]


def settings(broker: KafkaBroker, topics: str, format: str = "upsert", **others: object) -> KafkaSettings:
    return KafkaSettings.parse(broker.bootstrap, topics, format, **others)  # type: ignore[arg-type]


def rows(snapshot: Snapshot, table: str) -> list[Row]:
    """All rows of a table, as other processes read them."""
    partitions = pickle.loads(pickle.dumps([part for part in snapshot.partitions if part.table == table]))
    return sorted((row for part in partitions for row in part.rows()), key=lambda row: int(str(row["id"])))


def write(broker: KafkaBroker, topic: str, *records: Record, partition: int | None = None) -> None:
    """Keys and values as JSON; None is a tombstone."""
    with broker.producer() as producer:
        for key, value in records:
            data = None if value is None else json.dumps(value).encode()
            producer.send(topic, key=json.dumps(key).encode(), value=data, partition=partition)


def write_events(broker: KafkaBroker, collection: Collection, *events: tuple[str, object, object, object]) -> None:
    with broker.producer() as producer:
        for op, before, after, transaction in events:
            made = collection.event(op, before, after, transaction)  # type: ignore[arg-type]
            producer.send(collection.topic, key=made.key(), value=made.value(), partition=0)
            if op == "d":
                producer.send(collection.topic, key=made.key(), value=None, partition=0)


@pytest.fixture
def topic(kafka: KafkaBroker) -> Callable[..., str]:
    return lambda partitions=1: kafka.create_topic(kafka.topic_name("shop.item"), partitions)


def table_name(topic: str) -> str:
    return topic.rpartition(".")[2]


def test_the_last_value_of_each_key_is_left_and_tombstones_delete(
    kafka: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic(3)
    write(kafka, name, *(({"id": n}, {"id": n, "name": "old"}) for n in range(30)))
    write(kafka, name, *(({"id": n}, {"id": n, "name": "new"}) for n in range(10)))
    write(kafka, name, *(({"id": n}, None) for n in range(20, 30)))
    taken = take_snapshot(settings(kafka, name))
    write(kafka, name, ({"id": 1}, {"id": 1, "name": "after the snapshot"}))
    found = rows(taken, table_name(name))
    assert {row["id"]: row["name"] for row in found} == {n: "new" if n < 10 else "old" for n in range(20)}
    assert sum(KafkaPosition.from_json(taken.position).offsets[name]) == 50


@pytest.mark.parametrize("schemas", [True, False])
def test_debezium_changes_are_folded(kafka: KafkaBroker, topic: Callable[..., str], schemas: bool) -> None:
    item = Collection(topic(), ITEM, schemas=schemas)
    write_events(
        kafka,
        item,
        ("r", None, {"id": 1, "name": "read"}, None),
        ("r", None, {"id": 2, "name": "read"}, None),
        ("c", None, {"id": 3, "name": "made"}, None),
        ("u", {"id": 1, "name": "read"}, {"id": 1, "name": "changed"}, None),
        ("d", {"id": 2, "name": "read"}, None, None),
        ("c", None, {"id": 4, "name": "big"}, None),
        ("u", None, {"id": 4, "name": "__debezium_unavailable_value"}, None),
    )
    taken = take_snapshot(settings(kafka, item.topic, "debezium"))
    assert rows(taken, table_name(item.topic)) == [
        {"id": 1, "name": "changed"},
        {"id": 3, "name": "made"},
        {"id": 4, "name": "big"},
    ]
    assert taken.tables is not None
    assert [column.data_type for column in taken.tables[0].columns] == ["int8", "text"]


def test_a_truncate_empties_a_topic_of_one_partition(kafka: KafkaBroker, topic: Callable[..., str]) -> None:
    item = Collection(topic(), ITEM)
    write_events(kafka, item, ("c", None, {"id": 1, "name": "a"}, None))
    _truncate(kafka, item)
    write_events(kafka, item, ("c", None, {"id": 2, "name": "b"}, None))
    taken = take_snapshot(settings(kafka, item.topic, "debezium"))
    assert rows(taken, table_name(item.topic)) == [{"id": 2, "name": "b"}]


def test_a_truncate_among_several_partitions_is_refused(kafka: KafkaBroker, topic: Callable[..., str]) -> None:
    item = Collection(topic(2), ITEM)
    write_events(kafka, item, ("c", None, {"id": 1, "name": "a"}, None))
    _truncate(kafka, item)
    taken = take_snapshot(settings(kafka, item.topic, "debezium"))
    with pytest.raises(AdapterError, match="order relative to them is unknown") as caught:
        rows(taken, table_name(item.topic))
    assert "skipped.operations=t" in caught.value.fix


def _truncate(broker: KafkaBroker, collection: Collection) -> None:
    with broker.producer() as producer:
        made = collection.event("t", None, None)
        producer.send(collection.topic, value=made.value(), partition=0)


def transactional(broker: KafkaBroker, topic: str, transactions: str, steps: Sequence[str]) -> Collection:
    """`b1`: BEGIN of transaction 1; `c1`: it changes the row of id 1; `-5`: a row 5 of no transaction; `e1`: END."""
    item = Collection(topic, ITEM)
    counts: dict[str, int] = {}
    with broker.producer() as producer:
        for step in steps:
            kind, name = step[0], step[1:]
            if kind in "be":
                key, value = begin(name) if kind == "b" else end(name, {table_name(topic): counts[name]})
                producer.send(transactions, key=key, value=value)
                continue
            if kind == "c":
                counts[name] = counts.get(name, 0) + 1
            block = member(name, counts[name], counts[name]) if kind == "c" else None
            number = int(name) if kind == "-" else int(name) * 100 + counts[name]
            made = item.event("c", None, {"id": number, "name": step}, block)
            producer.send(topic, key=made.key(), value=made.value(), partition=0)
    return item


@pytest.mark.parametrize(
    ("steps", "ids", "starts", "markers"),
    [
        (["b1", "c1", "c1", "e1"], [101, 102], 2, 2),
        (["-5", "b1", "c1", "e1", "b2", "c2"], [5, 101], 2, 3),
        (["b1", "b2", "c1", "c2", "c1", "e2"], [201], 0, 3),
        (["b1", "c1", "-5", "b2", "c2", "e2"], [201], 0, 3),
        (["c1"], [], 0, 0),
        (["-5"], [5], 1, 0),
    ],
)
def test_a_transaction_that_has_not_ended_is_left_to_the_tail(
    kafka: KafkaBroker, topic: Callable[..., str], steps: list[str], ids: list[int], starts: int, markers: int
) -> None:
    name = topic()
    transactions = kafka.create_topic(kafka.topic_name("shop.transaction"))
    transactional(kafka, name, transactions, steps)
    options = {"transaction_topic": transactions, "tables": _collection(name)}
    taken = take_snapshot(settings(kafka, name, "debezium", **options))
    vector = KafkaPosition.from_json(taken.position)
    assert [row["id"] for row in rows(taken, "item")] == ids
    assert (vector.offsets[name], vector.offsets[transactions]) == ((starts,), (markers,))


def _collection(topic: str) -> dict[str, object]:
    return {"item": {"topic": topic, "collection": f"public.{table_name(topic)}"}}


def test_a_record_that_cannot_be_read_is_named(kafka: KafkaBroker, topic: Callable[..., str]) -> None:
    name = topic()
    write(kafka, name, ({"id": 1}, {"id": 1, "name": "a"}), ({"id": 2}, ["no", "row"]))
    taken = take_snapshot(settings(kafka, name))
    with pytest.raises(AdapterError, match=rf"the record at {name}\[0\] offset 1 cannot be read: .* list"):
        rows(taken, table_name(name))


def test_a_value_that_does_not_suit_its_column_is_told_with_record_table_and_column(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    write(
        kafka,
        name,
        *(({"id": n}, {"id": n, "done": value}) for n, value in ((1, True), (2, True), (2, "soon"), (3, False))),
    )
    tables = {"item": {"topic": name, "key": "id", "columns": {"id": "int8", "done": "bool"}}}
    taken = take_snapshot(settings(kafka, name, tables=tables))
    assert taken.tables is not None
    with pytest.raises(AdapterError) as caught:
        write_partition(tmp_path, PartTask(1, taken.tables[0], taken.partitions[0]))
    assert caught.value.code == "poison-record"
    assert f"the record at {name}[0] offset 2 cannot be read: " in caught.value.message
    assert "table item, column done (bool), row id=2" in caught.value.message


def test_a_row_without_a_value_in_its_key_is_told_with_its_record(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    with kafka.producer() as producer:
        for number in (b"1", b"null"):
            producer.send(name, value=b'{"id":%s,"name":"a"}' % number)
    taken = take_snapshot(settings(kafka, name))
    assert taken.tables is not None
    with pytest.raises(AdapterError, match=rf"the record at {name}\[0\] offset 1 cannot be read: .*column id"):
        write_partition(tmp_path, PartTask(1, taken.tables[0], taken.partitions[0]))


def half(row: Row) -> object:
    return 8 // int(str(row["size"]))


def larger(row: Row) -> object:
    return int(str(row["size"])) * 16


@pytest.mark.parametrize("size", [0, 1 << 60])
def test_a_row_that_a_mapping_makes_unfit_or_cannot_map_is_told_with_its_record(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path, size: int
) -> None:
    name = topic()
    write(kafka, name, *(({"id": n}, {"id": n, "size": of}) for n, of in ((1, 2), (2, 2), (2, size), (3, 4))))
    columns = {"half": MappedColumn(Function(half), "int8"), "size": MappedColumn(Function(larger), "int8")}
    adapter = KafkaAdapter(kafka.bootstrap, name, format="upsert")
    taken = MappedAdapter(adapter, {table_name(name): TableMapping("mapped", columns=columns)}).snapshot()
    assert taken.tables is not None
    with pytest.raises(AdapterError) as caught:
        write_partition(tmp_path, PartTask(1, taken.tables[0], taken.partitions[0]))
    assert caught.value.code == "poison-record"
    assert caught.value.where == f"{name}[0] offset 2"


def test_values_tell_columns_that_only_an_old_row_has(
    kafka: KafkaBroker, topic: Callable[..., str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.kafka.topics.surveying.NEWEST", 5)
    name = topic()
    write(kafka, name, ({"id": 0}, {"id": 0, "once": True}), *(({"id": n}, {"id": n}) for n in range(1, 20)))
    monkeypatch.setattr(logging.getLogger("changesource"), "propagate", True)
    caplog.set_level(logging.INFO, logger="changesource")
    taken = take_snapshot(settings(kafka, name))
    assert rows(taken, table_name(name))[0] == {"id": 0, "once": True}
    told = [record.__dict__["fields"]["columns"] for record in caplog.records if "inferred" in record.message]
    assert [text.partition(": ")[2] for text in told] == ["id int8 (key); once bool (null or absent in 19)"]


def test_a_snapshot_can_be_gone_on_with_while_its_records_are_there(
    kafka: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic()
    write(kafka, name, *(({"id": n}, {"id": n, "name": "a"}) for n in range(10)))
    taken = take_snapshot(settings(kafka, name))
    assert taken.can_resume is not None
    can_resume = pickle.loads(pickle.dumps(taken.can_resume))
    assert can_resume()
    kafka.delete_records(name, {0: 5})
    assert not can_resume()
    with pytest.raises(AdapterError, match="records were deleted while they were read"):
        rows(taken, table_name(name))
