"""Row changes of one table."""

import pickle
from types import MappingProxyType

from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.schema import Column, Table
from protocol.framing import unframe

ISSUE = Table("issue", [Column("id", int), Column("title", str)])


def test_a_batch_is_the_rows_one_by_one_whatever_their_length() -> None:
    encoder = TableEncoder(ISSUE)
    lengths = [*range(200), 65_400, 65_536, 70_000, 65_400]
    rows = [{"id": number, "title": "x" * length} for number, length in enumerate(lengths)]
    batches = list(encoder.inserts(rows))
    assert sum(count for count, _ in batches) == len(rows)
    assert b"".join(frames for _, frames in batches) == b"".join(map(encoder.insert, rows))


def test_no_rows_are_no_batches() -> None:
    assert list(TableEncoder(ISSUE).inserts([])) == []


def test_rows_may_come_in_any_order_of_columns_and_of_varying_types() -> None:
    encoder = TableEncoder(ISSUE)
    rows: list[dict[str, object]] = [
        {"title": "a", "id": 1},
        {"id": 2, "title": None},
        {"id": True, "title": "b"},
        {"id": 3.0, "title": "c"},
    ]
    payloads = [next(unframe(encoder.insert(row))).split(b'"new":')[1] for row in rows]
    assert payloads == [
        b'{"title":"a","id":1}}]',
        b'{"id":2,"title":null}}]',
        b'{"id":1,"title":"b"}}]',
        b'{"id":3,"title":"c"}}]',
    ]


def test_a_mapping_that_is_no_dict_will_do() -> None:
    encoder = TableEncoder(ISSUE)
    row = {"id": 1, "title": "a"}
    assert encoder.insert(MappingProxyType(row)) == encoder.insert(row)


def test_a_table_can_travel_to_another_process_and_encode_the_same() -> None:
    there = TableEncoder(pickle.loads(pickle.dumps(ISSUE)))
    assert there.insert({"id": 1}) == TableEncoder(ISSUE).insert({"id": 1})


def test_rows_that_are_json_already_get_the_same_frames() -> None:
    encoder = TableEncoder(ISSUE)
    rows = [{"id": number, "title": "x" * number} for number in range(300)]
    objects = list(map(encoder.row_json, rows))
    batches = list(encoder.json_inserts([objects[:7], [], objects[7:]]))
    assert [count for count, _ in batches] == [7, 0, 293]
    assert b"".join(frames for _, frames in batches) == b"".join(map(encoder.insert, rows))
