"""Rows folded by the checker: compared by what they say, and never a reason to stop."""

from __future__ import annotations

from typing import Any

from changesource_sdk.checking.folded_rows import FoldedRows
from protocol.codec import parse_downstream
from protocol.messages import Data

NAMES = {"here": "one", "there": "two"}


def folded(*changes: dict[str, Any]) -> FoldedRows:
    rows = FoldedRows()
    for change in changes:
        message = parse_downstream(["data", change])
        assert isinstance(message, Data)
        rows.take(message.change)
    return rows


def insert(row: dict[str, Any], key: list[str] | None = None) -> dict[str, Any]:
    columns = ["id"] if key is None else key
    return {"tag": "insert", "relation": {"schema": "public", "name": "t", "rowKey": {"columns": columns}}, "new": row}


def test_equal_rows_have_no_differences() -> None:
    assert list(folded(insert({"id": 1})).differences(folded(insert({"id": 1})), **NAMES)) == []


def test_rows_that_are_missing_on_either_side_are_told() -> None:
    found = sorted(folded(insert({"id": 1})).differences(folded(insert({"id": "x"})), **NAMES))
    assert found == ['t "x" is in two and not in one', "t 1 is in one and not in two"]


def test_the_first_column_that_differs_is_told() -> None:
    (found,) = folded(insert({"id": 1, "b": 1, "a": 1})).differences(folded(insert({"id": 1, "b": 2, "a": 2})), **NAMES)
    assert found == "t 1 has another a in two than in one"


def test_a_json_value_equals_its_text_and_a_missing_column_null() -> None:
    text, value = insert({"id": 1, "doc": '{"a": [1]}'}), insert({"id": 1, "doc": {"a": [1]}, "more": None})
    assert list(folded(text).differences(folded(value), **NAMES)) == []


def test_rows_without_a_key_are_not_compared() -> None:
    assert list(folded(insert({"id": 1}, [])).differences(folded(), **NAMES)) == []


def test_a_row_without_its_key_column_is_left_to_the_rules() -> None:
    assert folded(insert({"other": 1})).count == 0


def test_a_default_that_is_not_understood_is_left_to_the_rules() -> None:
    column = {"name": "at", "spec": {"pos": 2, "dataType": "timestamptz", "dflt": "now()"}}
    added = {"tag": "add-column", "table": {"schema": "public", "name": "t"}, "column": column}
    assert folded(insert({"id": 1}), added).tables == {"t": {(1,): {"id": 1}}}


def test_a_copy_changes_on_its_own() -> None:
    rows = folded(insert({"id": 1, "a": 1}))
    copy = rows.copy()
    message = parse_downstream(["data", insert({"id": 2})])
    assert isinstance(message, Data)
    copy.take(message.change)
    assert (rows.count, copy.count) == (1, 2)
