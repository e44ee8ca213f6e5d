"""Rows of spool parts as SQLite takes them."""

from __future__ import annotations

import pytest

from changesource_sdk.errors import SnapshotGone
from changesource_sdk.pipeline.compaction.job import wire_inserts
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.schema import Column, Table
from changesource_sdk.seed.rows import RowDecoder, comparable, sort_key

TABLE = Table("item", [Column("id", int), Column("text", str), Column("doc", dict), Column("tags", "text[]")])


def frames(*texts: str) -> bytes:
    encoder = TableEncoder(TABLE)
    return b"".join(
        encoder.insert({"id": at, "text": text, "doc": {"a": text}, "tags": [text]}) for at, text in enumerate(texts)
    )


@pytest.mark.parametrize(
    "texts",
    [
        ("",) * 3,
        ("x" * 200,) * 3,
        ("x" * 70_000, "y" * 70_000),
        ("", "x" * 200, "x" * 70_000, ""),
        ('"}]', '["data",{"tag":"insert","relation":', "\\", "\x00", "é" * 300),
    ],
)
def test_rows_of_any_size_and_content_are_read(texts: tuple[str, ...]) -> None:
    rows = RowDecoder(TABLE).block(frames(*texts))
    assert [row[:2] for row in rows] == list(enumerate(texts))
    assert all(isinstance(row[2], str | None) and isinstance(row[3], str) for row in rows)


def test_columns_may_come_in_another_order_and_json_without_text() -> None:
    ((_, found),) = wire_inserts(TABLE)([b'{"tags":[1,null],"doc":{"a":1.5},"text":"t","id":7}'])
    assert RowDecoder(TABLE).block(found) == [(7, "t", '{"a":1.5}', "[1,null]")]


def test_a_missing_column_is_null() -> None:
    ((_, found),) = wire_inserts(TABLE)([b'{"id":7}'])
    assert RowDecoder(TABLE).block(found) == [(7, None, None, None)]


@pytest.mark.parametrize("other", [Table("other", TABLE.columns), Table("item", TABLE.columns, key=("text",))])
def test_rows_of_another_table_are_refused(other: Table) -> None:
    found = TableEncoder(other).insert({"id": 1, "text": "x"})
    with pytest.raises(SnapshotGone, match="frames-unreadable"):
        RowDecoder(TABLE).block(found)
    with pytest.raises(SnapshotGone, match="frames-unreadable"):
        RowDecoder(TABLE).block(frames("x" * 300) + found)


def test_keys_of_any_type_compare_as_in_sqlite() -> None:
    keys = [b"", "", "a", 2, 1.5, None, "é", "z"]
    assert sorted(keys, key=comparable) == [None, 1.5, 2, "", "a", "z", "é", b""]  # type: ignore[arg-type]
    key = sort_key(Table("pair", [Column("a", int), Column("b", str)], key=("b", "a")))
    assert key is not None
    assert key((1, "x")) == ("x", 1)
