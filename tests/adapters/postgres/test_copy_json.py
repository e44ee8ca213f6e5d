from __future__ import annotations

import json
import random
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.catalog.table_selection import TableSelection
from adapters.postgres.connection import Connection
from adapters.postgres.copy_json import JsonWriter, UnexpectedNull, column_writer
from adapters.postgres.copy_text import CopyReader
from adapters.postgres.snapshot import copy_batches
from adapters.postgres.types import decoder, timestamp_ms
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.schema import Column
from tests.adapters.postgres.type_zoo import COLUMNS, ZOO, random_values


def test_every_short_way_gives_what_the_checked_way_gives(db: Connection) -> None:
    chance = random.Random(20)
    db.execute(ZOO.encode())
    names = ", ".join(COLUMNS)
    for number in range(400):
        values = ", ".join(random_values(chance, number))
        db.execute(f"INSERT INTO zoo ({names}) VALUES ({values})".encode())
    db.execute("CREATE PUBLICATION p FOR TABLE zoo")
    found = read_catalog(db, ["p"], TableSelection())
    (table,) = found.catalog.tables
    assert len(table.columns) == len(COLUMNS)
    writer = JsonWriter([(column.declared(), column.type_oid) for column in table.columns], found.types)
    reader = CopyReader(table.column_names, [decoder(column.type_oid, found.types) for column in table.columns])
    encoder = TableEncoder(table.declared())
    for batch in copy_batches(db, f"COPY (SELECT {names} FROM zoo) TO STDOUT", size=2_000):
        objects = [json.loads(text) for text in writer.objects(batch)]
        assert objects == [json.loads(encoder.row_json(row)) for row in reader.rows([batch])]
        assert list(objects[0]) == list(table.column_names)


def test_columns_that_the_store_lacks_are_null() -> None:
    writer = JsonWriter([(Column("50%", "text"), 0)], {}, absent=["b"])
    assert writer.objects(b'a"b\n') == [b'{"50%":"a\\"b","b":null}']


def test_a_null_where_none_is_allowed_is_left_to_the_checked_way() -> None:
    with pytest.raises(UnexpectedNull):
        JsonWriter([(Column("a", "text", optional=False), 0)], {}).objects(b"\\N\n")


@given(st.lists(st.datetimes(datetime(1830, 1, 1), datetime(2110, 1, 1)), min_size=1))
def test_timestamps_are_exact_to_the_microsecond_by_the_short_way(moments: list[datetime]) -> None:
    texts = [moment.isoformat(sep=" ") for moment in moments]
    exact = [timestamp_ms(text) for text in texts]
    for data_type, zone in (("timestamp", ""), ("timestamptz", "+00")):
        write = column_writer(Column("t", data_type), timestamp_ms)
        assert [json.loads(text) for text in write([text + zone for text in texts])] == exact
