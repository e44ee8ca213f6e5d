"""Values fit, are converted without loss, or are refused by name."""

import pytest

from adapters.sqlite.catalog.model import ColumnDef, TableDef
from adapters.sqlite.rows import StoredRowReader
from changesource_sdk.adapter import BadRow
from changesource_sdk.errors import AdapterError
from changesource_sdk.schema import JsonText


def reader(kind: str) -> StoredRowReader:
    columns = (ColumnDef(1, "id", "int8", True), ColumnDef(2, "v", kind))
    return StoredRowReader(TableDef(1, "t", columns, ("id",), ("_rowid_",)))


def read(kind: str, value: object) -> object:
    (row,) = reader(kind).rows([(1, value)])  # type: ignore[list-item]
    if isinstance(row, BadRow):
        assert (row.table, row.key) == ("t", {"id": 1})
        raise row.error
    return row["v"]


@pytest.mark.parametrize(
    ("kind", "stored", "sent"),
    [
        ("int8", 2**63 - 1, 2**63 - 1),
        ("int8", -(2**63), -(2**63)),
        ("float8", 0.1, 0.1),
        ("float8", 5e-324, 5e-324),
        ("numeric", 12, 12),
        ("numeric", 1.25, 1.25),
        ("bool", 0, False),
        ("bool", 1, True),
        ("bool", 1.0, True),
        ("bool", "TRUE", True),
        ("bool", "false", False),
        ("text", "𝒳\x00é", "𝒳\x00é"),
        ("text", 5, "5"),
        ("text", 1.5, "1.5"),
        ("json", '{"a": 1}', JsonText('{"a": 1}')),
        ("json", 5, JsonText("5")),
        ("bytea", b"\x00\xff", b"\x00\xff"),
        ("bytea", "text", "text"),
        ("int8", None, None),
        ("json", None, None),
    ],
)
def test_a_value_that_fits_travels_without_loss(kind: str, stored: object, sent: object) -> None:
    found = read(kind, stored)
    assert found == sent
    assert type(found) is type(sent)


@pytest.mark.parametrize(
    ("kind", "stored", "words"),
    [
        ("int8", "seven", "holds TEXT where int8 belongs"),
        ("int8", 1.5, "holds REAL where int8 belongs"),
        ("float8", "1,5", "holds TEXT where float8 belongs"),
        ("text", b"raw", "holds BLOB where text belongs"),
        ("json", b"raw", "holds BLOB where json belongs"),
        ("bool", 2, "2 is neither true nor false"),
        ("bool", "yes", "'yes' is neither true nor false"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place_and_a_fix(kind: str, stored: object, words: str) -> None:
    with pytest.raises(AdapterError) as refused:
        read(kind, stored)
    assert refused.value.code == "value-does-not-fit"
    assert words in refused.value.message
    assert "id=1" in refused.value.message
    assert refused.value.where == "table t, column v"
    assert "exclude the table" in refused.value.fix


def test_rows_of_many_kinds_are_each_judged_by_themselves() -> None:
    rows = list(reader("text").rows([(1, "a"), (2, 2), (3, None), (4, "b"), (5, 5.5)]))
    assert [not isinstance(row, BadRow) and row["v"] for row in rows] == ["a", "2", None, "b", "5.5"]


def test_a_bad_row_among_good_ones_is_named_by_its_key_as_consumers_have_it() -> None:
    rows = list(reader("bool").rows([(1, 1), (2, "yes"), (3, 0)]))
    assert [row.key if isinstance(row, BadRow) else row["id"] for row in rows] == [1, {"id": 2}, 3]
    columns = (ColumnDef(1, "code", "text", True), ColumnDef(2, "b", "bool"))
    (bad,) = StoredRowReader(TableDef(1, "t", columns, ("code",), ("_rowid_",))).rows([(5, 7)])
    assert isinstance(bad, BadRow)
    assert bad.key == {"code": "5"}


def test_a_key_is_converted_as_its_column_is() -> None:
    table = TableDef(1, "t", (ColumnDef(1, "code", "text", True),), ("code",), ("_rowid_",))
    assert StoredRowReader(table).key((5,)) == {"code": "5"}
