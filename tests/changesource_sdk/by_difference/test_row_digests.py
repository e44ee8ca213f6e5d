"""Digests and keys of rows: equal for what travels equally, different for everything else."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from changesource_sdk import Column, Index, InvalidChange, Row, Table
from changesource_sdk.by_difference.row_digests import RowDigester
from changesource_sdk.by_difference.versions import RememberedTable, from_json, to_json
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from protocol.codec import decode_changes

COLUMNS = [Column("id", int), Column("rate", float), Column("text", str), Column("at", datetime), Column("doc", dict)]
ROW: Row = {"id": 1, "rate": 2.5, "text": "x", "at": datetime(2026, 1, 1, tzinfo=UTC), "doc": {"a": [1]}}


def digest(row: Row, columns: list[Column] = COLUMNS) -> bytes:
    return RowDigester(Table("t", columns)).digest(row)


@pytest.mark.parametrize(
    "same",
    [
        dict(reversed(list(ROW.items()))),
        {**ROW, "id": 1.0},
        {**ROW, "id": True},
        {**ROW, "rate": Decimal("2.5")},
        {**ROW, "at": datetime(2026, 1, 1)},
        {**ROW, "at": 1767225600000},
    ],
)
def test_rows_that_travel_equally_have_one_digest(same: Row) -> None:
    assert digest(same) == digest(ROW)


@pytest.mark.parametrize(
    "other",
    [
        {**ROW, "id": 2},
        {**ROW, "text": None},
        {**ROW, "text": ""},
        {**ROW, "rate": float("nan")},
        {**ROW, "rate": 1e300},
        {**ROW, "id": 2**70},
        {**ROW, "text": "half a pair: \ud800"},
        {**ROW, "text": b"x"},
        {**ROW, "doc": {"a": [2]}},
        {**ROW, "text": "2.5", "rate": None},
    ],
)
def test_other_rows_have_other_digests_also_with_values_that_do_not_fit(other: Row) -> None:
    assert digest(other) != digest(ROW)
    assert digest(other) == digest(dict(other))


def test_neither_the_order_of_columns_nor_a_new_column_of_nulls_matters() -> None:
    wider = [Column("new", str), *reversed(COLUMNS)]
    assert digest({**ROW, "new": None}, wider) == digest(ROW, wider) == digest(ROW)
    assert digest({**ROW, "new": "x"}, wider) != digest(ROW)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (int, 7, "[7]"),
        (float, 7.0, "[7]"),
        (float, 0.1, "[0.1]"),
        (str, "ü", '["ü"]'),
        (bool, True, "[true]"),
        (date, date(2026, 1, 1), "[1767225600000]"),
        (UUID, UUID(int=1), '["00000000-0000-0000-0000-000000000001"]'),
    ],
)
def test_a_key_comes_back_as_the_key_of_a_delete(kind: type, value: object, text: str) -> None:
    table = Table("t", [Column("id", kind)])
    digester = RowDigester(table)
    assert digester.key({"id": value}) == text
    encoder = TableEncoder(table)
    first, second = (decode_changes(encoder.delete(key)) for key in (digester.key_row(text), {"id": value}))
    assert first == second


@pytest.mark.parametrize("value", [2**70, None, "1"])
def test_a_key_that_does_not_fit_is_refused(value: object) -> None:
    with pytest.raises(InvalidChange, match="column id"):
        RowDigester(Table("t", COLUMNS)).key({"id": value})


def test_what_is_remembered_of_tables_comes_back() -> None:
    table = Table("app.t", COLUMNS, indexes=[Index("by_text", ["text", ("rate", "DESC")], unique=True)])
    tables = (RememberedTable(7, table, {"etag": ["x", 1]}, 2.5), RememberedTable(8, Table("u", [Column("id", str)])))
    assert from_json(to_json(tables)) == tables
