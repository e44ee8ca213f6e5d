"""Records to transactions with positions: groups, growing tables, transactions of the source, poison."""

from __future__ import annotations

import logging
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from adapters.kafka import KafkaAdapter
from adapters.kafka.position import KafkaPosition
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.tail import STILL_THERE_S, KafkaTail, Traced
from changesource_sdk.adapter import AddColumn, BadRow, Column, Delete, Insert, Transaction
from changesource_sdk.changelog.dead_letters import DeadLetter
from changesource_sdk.errors import AdapterError, InvalidChange
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules, BadValues
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.pipeline.snapshot.take import checked_schema
from changesource_sdk.policies.bad_values import policy_of
from protocol import changes as wire
from protocol.codec import decode_changes
from tests.adapters.kafka.made_records import TABLES, a_batch, a_record, settings_of
from tests.support.workloads.debezium import Collection, begin, end, field, member

IDS = {"items": "i", "notes": "n"}
START = KafkaPosition({"items": (0, 0), "notes": (0,)}, IDS, TABLES)
WITH_ENDS = KafkaPosition({"items": (0, 0), "notes": (0,), "ends": (0,)}, {**IDS, "ends": "e"}, TABLES, ended_from=0)
ITEMS = Collection("items", [field("id", int), field("title", str)], schemas=False)
NOTES = Collection("notes", [field("id", int), field("body", str)], schemas=False)


def by_transactions(**changes: object) -> KafkaSettings:
    tables = {name: {"topic": f"{name}s", "collection": f"public.{name}s"} for name in ("item", "note")}
    return settings_of(format="debezium", transaction_topic="ends", tables=tables, **changes)


def take(tail: KafkaTail, *records: object, now: float = 0.0) -> list[Transaction]:
    return list(tail.take(a_batch(*records), now))


def rows(transaction: Transaction) -> list[object]:
    return [change.row["id"] for change in transaction.changes if isinstance(change, Insert)]


def offsets(transaction: Transaction) -> object:
    return KafkaPosition.from_json(transaction.position).offsets


def in_transaction(
    collection: Collection, offset: int, number: int, name: str, order: int, partition: int = 0
) -> object:
    row = {"id": number, "title": "x"} if collection is ITEMS else {"id": number, "body": "x"}
    event = collection.event("c", None, row, member(name, order, 1))
    return a_record(collection.topic, offset, event.key(), event.value(), partition)


def an_end(offset: int, name: str, **counts: int) -> object:
    return a_record("ends", offset, None, end(name, counts)[1])


# --- without transaction metadata ---


def test_what_one_poll_brings_is_one_transaction() -> None:
    [found] = take(
        KafkaTail(settings_of(), START),
        a_record("items", 0, 1, {"id": 1, "title": "a"}),
        a_record("items", 1, 1, None),
        a_record("notes", 4, 2, {"id": 2}, timestamp=2000),
    )
    expected = [Insert("item", {"id": 1, "title": "a"}), Delete("item", {"id": 1}), Insert("note", {"id": 2})]
    assert list(found.changes) == expected
    assert found.commit_time_ms == 2000
    assert KafkaPosition.from_json(found.position) == replace(START, offsets={"items": (2, 0), "notes": (5,)})


def test_a_record_may_be_a_transaction() -> None:
    tail = KafkaTail(settings_of(transactions="record"), START)
    found = take(tail, a_record("items", 0, 1, {"id": 1}), a_record("items", 7, 2, {"id": 2}, partition=1))
    assert [rows(one) for one in found] == [[1], [2]]
    assert [offsets(one) for one in found] == [{"items": (1, 0), "notes": (0,)}, {"items": (1, 8), "notes": (0,)}]


def test_a_poll_without_changes_is_no_transaction_but_moves_the_position_now_and_then() -> None:
    tail = KafkaTail(settings_of(format="debezium"), START, now=100.0)
    assert take(tail, a_record("items", 0, 1, None), now=101.0) == []
    [found] = take(tail, a_record("items", 1, 1, None), now=101.0 + STILL_THERE_S)
    assert list(found.changes) == []
    assert offsets(found) == {"items": (2, 0), "notes": (0,)}
    assert take(tail, now=500.0) == []


def test_a_new_column_is_told_before_its_row_and_stays_in_the_position() -> None:
    tail = KafkaTail(settings_of(), START)
    [found] = take(tail, a_record("items", 0, 1, {"id": 1, "size": 5}))
    assert list(found.changes) == [AddColumn("item", Column("size", "int8")), Insert("item", {"id": 1, "size": 5})]
    again = KafkaTail(settings_of(), KafkaPosition.from_json(found.position))
    [later] = take(again, a_record("items", 1, 2, {"id": 2, "size": 6}))
    assert list(later.changes) == [Insert("item", {"id": 2, "size": 6})]


def test_new_partitions_are_read_from_their_first_record() -> None:
    tail = KafkaTail(settings_of(), START)
    tail.follow([("notes", 1)])
    [found] = take(tail, a_record("notes", 0, 1, {"id": 1}, partition=1))
    assert offsets(found) == {"items": (0, 0), "notes": (0, 1)}


# --- with transaction metadata ---


def test_a_transaction_over_topics_and_partitions_comes_whole_by_total_order() -> None:
    tail = KafkaTail(by_transactions(), WITH_ENDS)
    assert take(tail, in_transaction(NOTES, 0, 3, "T", 3), in_transaction(ITEMS, 0, 2, "T", 2, partition=1)) == []
    assert take(tail, a_record("ends", 0, None, begin("T")[1]), an_end(1, "T", items=2, notes=1)) == []
    [found] = take(tail, in_transaction(ITEMS, 0, 1, "T", 1))
    assert rows(found) == [1, 2, 3]
    assert KafkaPosition.from_json(found.position) == replace(
        WITH_ENDS, offsets={"items": (1, 1), "notes": (1,), "ends": (2,)}, ended_from=2
    )


def test_the_position_stands_before_what_is_open_and_skips_what_was_passed_on() -> None:
    tail = KafkaTail(by_transactions(), WITH_ENDS)
    open_record, done_record = in_transaction(ITEMS, 0, 1, "open", 1), in_transaction(ITEMS, 1, 2, "done", 1)
    [found] = take(tail, open_record, done_record, an_end(0, "done", items=1))
    assert rows(found) == [2]
    vector = KafkaPosition.from_json(found.position)
    assert (vector.offsets["items"], vector.read["items"], vector.ended_from) == ((0, 0), (2, 0), 0)
    again = KafkaTail(by_transactions(), vector)
    assert take(again, open_record, done_record, an_end(0, "done", items=1)) == []
    [rest] = take(again, an_end(1, "open", items=1))
    assert rows(rest) == [1]


def test_records_of_no_transaction_come_together() -> None:
    tail = KafkaTail(by_transactions(), WITH_ENDS)
    read = [ITEMS.event("r", None, {"id": number, "title": "x"}) for number in (1, 2, 3)]
    records = [a_record("items", offset, event.key(), event.value()) for offset, event in enumerate(read)]
    [found] = take(tail, *records)
    assert rows(found) == [1, 2, 3]
    assert offsets(found) == {"items": (3, 0), "notes": (0,), "ends": (0,)}
    more = ITEMS.event("r", None, {"id": 4, "title": "x"})
    ended = [in_transaction(ITEMS, 4, 5, "T", 1), an_end(0, "T", items=1)]
    [together] = take(tail, a_record("items", 3, more.key(), more.value()), *ended)
    assert rows(together) == [4, 5]


def test_collections_that_are_not_followed_are_not_waited_for() -> None:
    tail = KafkaTail(by_transactions(), WITH_ENDS)
    [found] = take(tail, in_transaction(ITEMS, 0, 1, "T", 2), an_end(0, "T", items=1, secrets=4))
    assert rows(found) == [1]


def test_a_column_that_an_open_transaction_brings_is_told_with_the_first_row_that_has_it() -> None:
    tail = KafkaTail(by_transactions(), WITH_ENDS)
    wide = [
        ITEMS.event("c", None, {"id": number, "title": "x", "size": 5}, member(name, 1, 1))
        for number, name in ((1, "slow"), (2, "quick"))
    ]
    records = [a_record("items", offset, event.key(), event.value()) for offset, event in enumerate(wide)]
    [quick] = take(tail, *records, an_end(0, "quick", items=1))
    assert [type(change) for change in quick.changes] == [AddColumn, Insert]
    [slow] = take(tail, an_end(1, "slow", items=1))
    assert [type(change) for change in slow.changes] == [Insert]


def test_a_transaction_that_waits_too_long_is_named(caplog: pytest.LogCaptureFixture) -> None:
    tail = KafkaTail(by_transactions(stall_after=30), WITH_ENDS)
    take(tail, in_transaction(ITEMS, 0, 1, "9:77", 1), now=100.0)
    with caplog.at_level(logging.WARNING, "changesource"):
        tail.alarm(129.0)
        assert caplog.messages == []
        tail.alarm(131.0)
        tail.alarm(132.0)
    assert caplog.messages == [
        "1 record of transaction 9:77 came, and its END has not; every start reads from its records on"
    ]


def test_a_transaction_that_has_ended_short_holds_up_all_after_it_and_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tail = KafkaTail(by_transactions(stall_after=30), WITH_ENDS)
    take(tail, in_transaction(ITEMS, 0, 1, "9:77", 1), an_end(0, "9:77", items=1, notes=2), now=100.0)
    assert take(tail, in_transaction(ITEMS, 1, 2, "9:78", 1), an_end(1, "9:78", items=1), now=101.0) == []
    with caplog.at_level(logging.WARNING, "changesource"):
        tail.alarm(130.5)
    missing = "1 record of transaction 9:77 and its END came, and its other records have not: 2 of notes"
    waiting = "whole transactions that wait for it: 1"
    assert caplog.messages == [f"{missing}; {waiting}; nothing after it is passed on"]


def test_a_whole_transaction_behind_another_is_not_called_short(caplog: pytest.LogCaptureFixture) -> None:
    tail = KafkaTail(by_transactions(stall_after=30), WITH_ENDS)
    take(tail, an_end(0, "first", items=1), in_transaction(ITEMS, 0, 2, "second", 1), now=100.0)
    take(tail, an_end(1, "second", items=1), now=100.0)
    with caplog.at_level(logging.WARNING, "changesource"):
        tail.alarm(200.0)
    assert caplog.messages == [
        "0 records of transaction first and its END came, and its other records have not: 1 of items; "
        "whole transactions that wait for it: 1; nothing after it is passed on"
    ]
    [first, second] = take(tail, in_transaction(ITEMS, 1, 1, "first", 1), now=201.0)
    assert (rows(first), rows(second)) == ([1], [2])


# --- records that cannot be read ---


def test_poison_stops_the_stream_and_says_where_and_why() -> None:
    tail = KafkaTail(settings_of(), START)
    with pytest.raises(AdapterError) as caught:
        take(tail, a_record("items", 7, 1, b"{oops", partition=1))
    assert caught.value.code == "poison-record"
    assert "the record at items[1] offset 7 cannot be read: its value cannot be decoded" in caught.value.message
    assert "poison=set-aside" in caught.value.fix


def refusal(transaction: Transaction) -> AdapterError:
    """What the pipeline tells of a transaction that it refuses."""
    encoder = TransactionEncoder(checked_schema(TABLES.tables), lambda: Path("unused"))
    with pytest.raises(AdapterError) as caught:
        encoder.encode(transaction)
    return caught.value


def left_out(transaction: Transaction) -> list[DeadLetter]:
    """The rows that the pipeline leaves out of a transaction with one good row; `id` of that row is 2."""
    bad_values = BadValues(BadValueRules("dead-letter"))
    encoder = TransactionEncoder(checked_schema(TABLES.tables), lambda: Path("unused"), bad_values=bad_values)
    encoded = encoder.encode(transaction)
    assert isinstance(encoded.data, bytes)
    sent = [change for change in decode_changes(encoded.data) if isinstance(change, wire.Insert)]
    assert [change.new["id"] for change in sent] == [2]
    return [edit.letter for edit in encoded.letters if edit.letter is not None]


@pytest.mark.parametrize("grouping", ["batch", "record"])
def test_a_value_that_does_not_suit_its_column_is_told_with_record_table_and_column(grouping: str) -> None:
    fine, poison = a_record("items", 2, None, {"id": 1}), a_record("items", 3, None, {"id": "one", "size": 5})
    error = refusal(take(KafkaTail(settings_of(transactions=grouping), START), fine, poison)[-1])
    assert (error.code, error.where) == ("poison-record", "items[0] offset 3")
    assert error.message == (
        "the record at items[0] offset 3 cannot be read: a value of type str where a 64-bit integer is needed "
        "(table item, column id (int8), row id='one')"
    )
    assert "poison=set-aside" in error.fix


def test_in_a_transaction_of_the_source_the_record_is_told_as_well() -> None:
    bad = ITEMS.event("c", None, {"id": "one", "title": "x"}, member("T", 1, 1))
    tail = KafkaTail(by_transactions(), WITH_ENDS)
    take(tail, in_transaction(ITEMS, 4, 2, "T", 2), a_record("items", 7, bad.key(), bad.value(), partition=1))
    [found] = take(tail, an_end(0, "T", items=2))
    assert refusal(found).where == "items[1] offset 7"


def test_what_the_adapter_itself_put_before_the_records_is_no_poison() -> None:
    traced = Traced([Insert("item", {"id": "one"})], [])
    assert next(iter(traced)) == Insert("item", {"id": "one"})
    error = InvalidChange("some-code", "a message", "somewhere", "a fix")
    assert traced.explain(error) is error


def test_poison_is_set_aside_and_the_stream_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    letters = tmp_path / "dead.jsonl"
    tail = KafkaTail(settings_of(poison="set-aside", dead_letters=str(letters)), START)
    with caplog.at_level(logging.WARNING, "changesource"):
        [found] = take(
            tail,
            a_record("items", 0, 1, b"{oops"),
            a_record("items", 1, 2, {"id": 2}),
            a_record("items", 2, "three", {"id": "three"}),
        )
    assert offsets(found) == {"items": (3, 0), "notes": (0,)}
    undecodable, letter = left_out(found)
    assert (undecodable.row, undecodable.where, undecodable.code) == ("id=1", "items[0] offset 0", "poison-record")
    assert "its value cannot be decoded" in undecodable.message
    assert (letter.row, letter.where) == ("id='three'", "items[0] offset 2")
    lines = [orjson.loads(line) for line in letters.read_bytes().splitlines()]
    assert [(line["topic"], line["partition"], line["offset"]) for line in lines] == [("items", 0, 0)]
    assert b64decode(lines[0]["value"]) == b"{oops"
    assert "cannot be decoded" in lines[0]["reason"]
    assert lines[0]["row"] == {"id": 1}
    assert "a value of type str where a 64-bit integer is needed (table item, column id" in letter.message
    assert caplog.messages == ["a record was set aside", "a row was left out", "a row was left out"]


@pytest.mark.parametrize(
    ("settings", "key", "value", "row"),
    [
        ({}, 1, b"{oops", {"id": 1}),
        ({}, b"{oops", b"{oops", None),
        ({}, None, b"{oops", None),
        ({}, b'"a"', [1], {"id": "a"}),
        ({"format": "debezium"}, {"id": 1}, {"op": "?"}, {"id": 1}),
        ({"format": "debezium"}, None, {"op": "?", "after": {"id": 1}}, {"id": 1}),
        ({"format": "debezium"}, None, {"op": "u", "before": {"id": 1}}, {"id": 1}),
        ({"format": "debezium", "key_mismatch": "value"}, {"id": 7}, {"op": "?", "after": {"id": 1}}, {"id": 1}),
        ({"key_mismatch": "value"}, 1, b"{oops", None),
        ({"key_mismatch": "value"}, 1, None, None),
    ],
)
def test_no_consumer_keeps_the_row_that_a_record_set_aside_has_replaced(
    tmp_path: Path, settings: dict[str, str], key: object, value: object, row: object
) -> None:
    path = tmp_path / "dead.jsonl"
    tail = KafkaTail(settings_of(poison="set-aside", dead_letters=str(path), **settings), START)
    bad = [change for one in take(tail, a_record("items", 0, key, value)) for change in one.changes]
    assert [(change.table, change.key) for change in bad if isinstance(change, BadRow)] == ([("item", row)] * bool(row))
    [line] = map(orjson.loads, path.read_bytes().splitlines())
    assert line["row"] == row
    assert ("consumers keep that row as they have it" in line["reason"]) == (row is None)


def test_a_key_that_is_not_that_of_its_row_stops_the_stream_or_is_set_aside(tmp_path: Path) -> None:
    record = a_record("items", 4, b"user:1", {"id": 1})
    with pytest.raises(AdapterError) as caught:
        take(KafkaTail(settings_of(poison="set-aside", dead_letters=str(tmp_path / "dead")), START), record)
    assert caught.value.code == "key-mismatch"
    told = "the key of the record at items[0] offset 4 is not that of a row: its key is user:1, and its row has id = 1"
    assert caught.value.message == told
    assert "key_format" in caught.value.fix
    letters = tmp_path / "dead.jsonl"
    aside = KafkaTail(settings_of(key_mismatch="set-aside", dead_letters=str(letters)), START)
    [found] = take(aside, record, a_record("items", 5, b"user:1", None), a_record("items", 6, 2, {"id": 2}))
    assert rows(found) == [2]
    assert [orjson.loads(line)["offset"] for line in letters.read_bytes().splitlines()] == [4, 5]


def test_what_is_set_aside_still_counts_in_its_transaction(tmp_path: Path) -> None:
    settings = by_transactions(poison="set-aside", dead_letters=str(tmp_path / "dead.jsonl"))
    tail = KafkaTail(settings, WITH_ENDS)
    bad = ITEMS.event("c", None, {"id": "one", "title": "x"}, member("T", 1, 1))
    take(tail, a_record("items", 0, bad.key(), bad.value()), in_transaction(ITEMS, 1, 2, "T", 2))
    [found] = take(tail, an_end(0, "T", items=2))
    [letter] = left_out(found)
    assert letter.where == "items[0] offset 0"


def test_rows_that_no_consumer_can_hold_are_left_out_where_records_are_set_aside(tmp_path: Path) -> None:
    assert policy_of("", KafkaAdapter("h:1", "items")) == "stop"
    aside = KafkaAdapter("h:1", "items", poison="set-aside", dead_letters=str(tmp_path / "dead"))
    assert policy_of("", aside) == "dead-letter"
    assert policy_of("stop", aside) == "stop"


def test_poison_of_an_unknown_transaction_always_stops(tmp_path: Path) -> None:
    settings = by_transactions(poison="set-aside", dead_letters=str(tmp_path / "dead.jsonl"))
    with pytest.raises(AdapterError, match="without it one would be torn"):
        take(KafkaTail(settings, WITH_ENDS), a_record("items", 0, None, b"{oops"))
    with pytest.raises(AdapterError, match="no transaction after it is known to be whole"):
        take(KafkaTail(settings, WITH_ENDS), a_record("ends", 0, None, {"status": "MIDDLE"}))
    with pytest.raises(AdapterError, match="an END counts 3 records, and 1 by collection"):
        listed = [{"data_collection": "public.items", "event_count": 1}]
        value = {"status": "END", "id": "T", "event_count": 3, "data_collections": listed}
        take(KafkaTail(settings, WITH_ENDS), a_record("ends", 0, None, value))


def test_a_file_that_cannot_be_written_stops_the_stream(tmp_path: Path) -> None:
    tail = KafkaTail(settings_of(poison="set-aside", dead_letters=str(tmp_path)), START)
    with pytest.raises(AdapterError, match="cannot be set aside"):
        take(tail, a_record("items", 0, 1, b"{oops"))
