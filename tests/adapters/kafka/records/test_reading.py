"""What records of either format say, and how tables grow with what they bring."""

from __future__ import annotations

import orjson
import pytest

from adapters.kafka.records.catalog import Catalog, TopicTable
from adapters.kafka.records.decoding import NOTHING, Decoded, JsonDecoder, Unreadable, Unwrapping
from adapters.kafka.records.reading import RecordReader, make_decoder
from adapters.kafka.types import Encoded
from changesource_sdk.adapter import AddColumn, Column, Delete, Insert, Truncate, Update
from changesource_sdk.errors import ConfigurationError, InvalidChange, ResyncRequired
from changesource_sdk.toolkit import TableEncoder
from tests.adapters.kafka.made_records import ITEM, TABLES, settings_of
from tests.support.workloads.debezium import Collection, field

ITEMS = Collection("items", [field("id", int), field("title", str)], schemas=False)
DESCRIBED = Collection("items", [field("id", int), field("title", str)])


def read_upsert(key: bytes | None, value: bytes | None, table: TopicTable = ITEM) -> Decoded:
    return RecordReader(settings_of(), Catalog([table])).read("items", key, value)


def read_debezium(key: bytes | None, value: bytes | None, reading: RecordReader | None = None) -> Decoded:
    return (reading or a_debezium_reading()).read("items", key, value)


def a_debezium_reading() -> RecordReader:
    return RecordReader(settings_of(format="debezium"), Catalog([ITEM]))


# --- plain topics ---


def test_a_record_is_the_row_of_its_key() -> None:
    assert read_upsert(b"1", b'{"id":1,"title":"a"}').changes == (Insert("item", {"id": 1, "title": "a"}),)


def test_a_tombstone_deletes() -> None:
    assert read_upsert(b'{"id":1}', None).changes == (Delete("item", {"id": 1}),)
    assert read_upsert(b"1", b"null").changes == (Delete("item", {"id": 1}),)


@pytest.mark.parametrize("key", [b"1", b'{"id":1}', b'{"schema":{},"payload":{"id":1}}'])
def test_key_columns_that_the_value_lacks_come_from_the_key(key: bytes) -> None:
    assert read_upsert(key, b'{"title":"a"}').changes == (Insert("item", {"id": 1, "title": "a"}),)


def test_keys_may_be_plain_texts() -> None:
    table = TopicTable.of("items", "item", {"id": Encoded("text")}, ["id"], key_format="text")
    assert read_upsert(b"abc", b"{}", table).changes == (Insert("item", {"id": "abc"}),)
    with pytest.raises(Unreadable, match="no text"):
        read_upsert(b"\xff", b"{}", table)


def test_key_values_are_decoded_as_their_columns_are() -> None:
    table = TopicTable.of("items", "item", {"id": Encoded("date", "days")}, ["id"])
    assert read_upsert(b"1", None, table).changes == (Delete("item", {"id": 86_400_000}),)
    assert read_upsert(b"1", b"{}", table).changes == (Insert("item", {"id": 86_400_000}),)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, None, "neither key nor value"),
        (b"{}", None, "lacks id"),
        (b"[1]", b"[]", "not an object"),
        (None, b"{}", "neither key nor value has id"),
        (b"1", b"{", "its value cannot be decoded"),
        (b"{", b'{"title":"a"}', "its key cannot be decoded"),
    ],
)
def test_what_is_no_row_is_told(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read_upsert(key, value)


# --- keys that are not those of the rows ---


@pytest.mark.parametrize("key", [b"user:1", b"2", b'"1"', b'{"user":1}', b"[1]"])
def test_a_key_that_is_not_that_of_the_row_is_told_with_both(key: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        read_upsert(key, b'{"id":1,"title":"a"}')
    assert caught.value.is_mismatch
    assert caught.value.reason == f"its key is {key.decode()}, and its row has id = 1"


def test_debeziums_keys_are_compared_with_the_rows_and_may_have_more_columns() -> None:
    row = {"id": 1, "title": "a"}
    for op, before, after in (("c", None, row), ("u", row, row), ("d", row, None)):
        value = ITEMS.event(op, before, after).value()
        assert read_debezium(b'{"id":1,"__dbz__physicalTableIdentifier":"x"}', value).changes
        with pytest.raises(Unreadable, match=r'its key is \{"id":2\}, and its row has id = 1') as caught:
            read_debezium(b'{"id":2}', value)
        assert caught.value.is_mismatch


@pytest.mark.parametrize(
    "key",
    [
        b'"1"',
        b'{"id":"1"}',
        b'{ "id": "1" }',
        b"1",
        b'{"schema":{},"payload":{"id":"1"}}',
        b'{"payload":"1","schema":0}',
    ],
)
def test_the_same_key_may_be_spelled_in_many_ways(key: bytes) -> None:
    table = TopicTable.of("items", "item", {"id": Encoded("text"), "n": Encoded("int8")}, ["id"])
    assert read_upsert(key, b'{"id":"1","n":1}', table).changes


@pytest.mark.parametrize(
    "key", [b'{"x":{"id":1}}', b'{"payload":{"id":1}}', b'{"schema":{"id":1},"payload":{"id":2}}', b"01"]
)
def test_what_only_ends_like_the_key_is_none(key: bytes) -> None:
    with pytest.raises(Unreadable, match="and its row has id = 1"):
        read_upsert(key, b'{"id":1}')


def test_keys_of_several_columns_are_compared_column_by_column() -> None:
    table = TopicTable.of("items", "item", {"id": Encoded("int8"), "due": Encoded("date", "days")}, ["id", "due"])
    assert read_upsert(b'{"due":2,"id":1}', b'{"id":1,"due":2}', table).changes
    with pytest.raises(Unreadable, match=r'its key is \{"id":1,"due":3\}, and its row has id = 1, due = 172800000'):
        read_upsert(b'{"id":1,"due":3}', b'{"id":1,"due":2}', table)


def test_keys_may_be_ignored_and_then_tombstones_name_no_row() -> None:
    reading = RecordReader(settings_of(key_mismatch="value"), Catalog([ITEM]))
    assert reading.read("items", b"user:1", b'{"id":1}').changes == (Insert("item", {"id": 1}),)
    with pytest.raises(Unreadable, match="its key does not say which row to delete") as caught:
        reading.read("items", b"1", None)
    assert not caught.value.is_mismatch


def test_a_tombstone_whose_key_names_no_row_is_a_mismatch() -> None:
    with pytest.raises(Unreadable, match="a tombstone that names no row: its key cannot be decoded") as caught:
        read_upsert(b"user:1", None)
    assert caught.value.is_mismatch


@pytest.mark.parametrize("number", [1 << 70, -(1 << 63) - 1, 1 << 63])
def test_integers_beyond_64_bits_stay_exact_and_are_called_so(number: int) -> None:
    value = b'{"id":1,"title":%d}' % number
    assert read_upsert(b"1", value).changes == (Insert("item", {"id": 1, "title": str(number)}),)
    numbers = TopicTable.of("items", "item", {"id": Encoded("int8"), "n": Encoded("int8")}, ["id"])
    [insert] = read_upsert(b"1", b'{"id":1,"n":%d}' % number, numbers).changes
    with pytest.raises(InvalidChange, match="an integer beyond 64 bits where a 64-bit integer is needed"):
        assert isinstance(insert, Insert)
        TableEncoder(numbers.table).insert(insert.row)


def test_large_floats_stay_floats() -> None:
    found = JsonDecoder().value("items", b'{"n":1e300,"id":"1234567890123456789012"}')
    assert found == {"n": 1e300, "id": "1234567890123456789012"}
    assert isinstance(JsonDecoder().value("items", b'{"n":1e300,"m":12345678901234567890}')["m"], int)  # type: ignore[index]


# --- Debezium ---


@pytest.mark.parametrize("collection", [ITEMS, DESCRIBED])
@pytest.mark.parametrize("op", ["c", "r"])
def test_created_and_snapshot_rows_are_inserts(collection: Collection, op: str) -> None:
    event = collection.event(op, None, {"id": 1, "title": "a"})
    assert read_debezium(event.key(), event.value()).changes == (Insert("item", {"id": 1, "title": "a"}),)


@pytest.mark.parametrize("collection", [ITEMS, DESCRIBED])
def test_an_updated_row_is_an_update(collection: Collection) -> None:
    event = collection.event("u", None, {"id": 1, "title": "b"})
    assert read_debezium(event.key(), event.value()).changes == (Update("item", {"id": 1, "title": "b"}, None),)


def test_an_update_that_moves_the_key_names_the_old_one() -> None:
    event = ITEMS.event("u", {"id": 1, "title": "a"}, {"id": 2, "title": "a"})
    assert read_debezium(event.key(), event.value()).changes == (Update("item", {"id": 2, "title": "a"}, {"id": 1}),)


def test_a_value_that_was_not_available_is_left_as_it_is() -> None:
    event = ITEMS.event("u", None, {"id": 1, "title": "__debezium_unavailable_value"})
    assert read_debezium(event.key(), event.value()).changes == (Update("item", {"id": 1}, None),)


def test_a_deleted_row_is_named_by_its_image_or_by_the_key() -> None:
    event = ITEMS.event("d", {"id": 1, "title": None}, None)
    assert read_debezium(event.key(), event.value()).changes == (Delete("item", {"id": 1}),)
    bare = orjson.dumps({"op": "d", "before": None, "after": None})
    assert read_debezium(b'{"id":1}', bare).changes == (Delete("item", {"id": 1}),)
    with pytest.raises(Unreadable, match="without key"):
        read_debezium(None, bare)


def test_the_tombstone_after_a_delete_says_nothing() -> None:
    assert read_debezium(b'{"id":1}', None) == NOTHING


def test_truncates_and_messages() -> None:
    assert read_debezium(None, b'{"op":"t"}').changes == (Truncate(["item"]),)
    assert read_debezium(None, b'{"op":"m"}').changes == ()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"id":1}', "no Debezium envelope"),
        (b"7", "no Debezium envelope"),
        (b'{"op":"x"}', "its op is 'x'"),
        (b'{"op":"c","after":null}', "`after` is no row"),
        (b'{"op":"c","after":{"id":1},"transaction":{"id":5}}', "no id and total_order"),
    ],
)
def test_what_is_no_change_is_told(value: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read_debezium(None, value)


def test_the_place_in_a_transaction_is_told_also_of_what_cannot_be_read() -> None:
    event = ITEMS.event("c", None, {"id": 1}, {"id": "7:1", "total_order": 3})
    found = read_debezium(event.key(), event.value())
    assert (found.transaction, found.order) == ("7:1", 3)
    with pytest.raises(Unreadable) as caught:
        read_debezium(None, b'{"op":"c","after":5,"transaction":{"id":"7:1","total_order":3}}')
    assert (caught.value.transaction, caught.value.order) == ("7:1", 3)


def test_values_are_read_by_the_schema_they_come_with() -> None:
    dated = Collection("items", [field("id", int), field("due", "int32", semantic="io.debezium.time.Date")])
    event = dated.event("c", None, {"id": 1, "due": 2})
    assert read_debezium(event.key(), event.value()).changes == (Insert("item", {"id": 1, "due": 172_800_000}),)


# --- growing tables ---


def test_a_schema_with_more_fields_makes_the_table_grow() -> None:
    reading = a_debezium_reading()
    before = reading.catalog
    first, wider = (
        DESCRIBED.event("c", None, {"id": 1, "title": "a"}),
        Collection(
            "items", [*DESCRIBED.fields, field("at", "int64", semantic="io.debezium.time.MicroTimestamp")]
        ).event("c", None, {"id": 2, "title": "b", "at": 5_000}),
    )
    read_debezium(None, first.value(), reading)
    assert reading.catalog is before
    assert read_debezium(None, wider.value(), reading).changes == (Insert("item", {"id": 2, "title": "b", "at": 5}),)
    assert reading.catalog.grown_since(before) == [AddColumn("item", Column("at", "timestamp"))]
    old = read_debezium(None, first.value(), reading)
    assert old.changes == (Insert("item", {"id": 1, "title": "a"}),)


def test_a_field_that_is_new_makes_the_table_grow_once_it_has_a_value() -> None:
    reading = RecordReader(settings_of(), TABLES)
    before = reading.catalog
    assert reading.read("items", b"1", b'{"id":1,"size":null}').changes == (Insert("item", {"id": 1}),)
    assert reading.catalog is before
    assert reading.read("items", b"1", b'{"id":1,"size":5}').changes == (Insert("item", {"id": 1, "size": 5}),)
    assert reading.catalog.grown_since(before) == [AddColumn("item", Column("size", "int8"))]


def test_declared_columns_are_all_there_are() -> None:
    table = TopicTable.of("items", "item", {"id": Encoded("int8")}, ["id"], is_closed=True)
    assert read_upsert(b"1", b'{"id":1,"secret":5}', table).changes == (Insert("item", {"id": 1}),)


def test_a_reading_that_does_not_grow_leaves_out_what_is_no_column() -> None:
    reading = RecordReader(settings_of(), TABLES, grows=False)
    before = reading.catalog
    assert reading.read("items", b"1", b'{"id":1,"size":5}').changes == (Insert("item", {"id": 1}),)
    assert reading.catalog is before


def test_a_column_of_another_kind_calls_for_a_new_snapshot() -> None:
    other = Collection("items", [field("id", int), field("title", int)]).event("c", None, {"id": 1, "title": 5})
    with pytest.raises(ResyncRequired, match="column title of topic items was text and is now int8"):
        read_debezium(None, other.value())


def test_a_narrower_number_is_no_other_kind() -> None:
    table = TopicTable.of("items", "item", {"id": Encoded("int8"), "rate": Encoded("float8")}, ["id"])
    reading = RecordReader(settings_of(format="debezium"), Catalog([table]))
    whole = Collection("items", [field("id", int), field("rate", "int32")]).event("c", None, {"id": 1, "rate": 5})
    assert read_debezium(None, whole.value(), reading).changes == (Insert("item", {"id": 1, "rate": 5}),)


# --- schemas around values, decoders ---


def test_the_same_schema_is_parsed_once_and_gives_the_same_rows() -> None:
    unwrapping = Unwrapping("items", JsonDecoder())
    values = [DESCRIBED.event("c", None, {"id": number, "title": "a"}).value() for number in range(3)]
    found = [unwrapping.value(value) for value in values]
    assert [one.payload for one in found] == [orjson.loads(value)["payload"] for value in values]
    assert found[1].schema is found[0].schema is found[2].schema


def test_a_value_cut_after_a_known_schema_is_told() -> None:
    unwrapping = Unwrapping("items", JsonDecoder())
    value = DESCRIBED.event("c", None, {"id": 1, "title": "a"}).value()
    unwrapping.value(value)
    with pytest.raises(Unreadable, match="cannot be decoded"):
        unwrapping.value(value[:-3])


def test_a_payload_before_its_schema_is_read_as_well() -> None:
    unwrapping = Unwrapping("items", JsonDecoder())
    for number in range(2):
        value = orjson.dumps({"payload": number, "schema": {"type": "int32"}})
        assert unwrapping.value(value) == (number, {"type": "int32"})


class Shouting:
    """A decoder of texts such as `1=a`."""

    def key(self, topic: str, data: bytes) -> object:
        return int(data)

    def value(self, topic: str, data: bytes) -> object:
        return {"id": int(data.partition(b"=")[0]), "title": data.partition(b"=")[2].decode().upper()}


def test_a_decoder_of_the_users_reads_other_formats() -> None:
    reading = RecordReader(settings_of(decoder=f"{__name__}:Shouting"), TABLES)
    assert reading.read("items", b"1", b"1=a").changes == (Insert("item", {"id": 1, "title": "A"}),)
    with pytest.raises(Unreadable, match="its value cannot be decoded: invalid literal"):
        reading.read("items", b"1", b"x=a")


@pytest.mark.parametrize("path", ["no_such_module:X", f"{__name__}:Nothing", "json:JSONDecoder"])
def test_a_decoder_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"decoder|key and value"):
        make_decoder(path)
