"""What counts as the same value, and how a difference is told."""

from __future__ import annotations

import pytest

from changesource_sdk.testing.conformance.comparing import Difference, differences, same_state, same_value
from changesource_sdk.testing.conformance.history import Document

Rows = dict[str, dict[tuple[object, ...], dict[str, object]]]


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, 2, False),
        (1, "1", False),
        ("1", 1, False),
        (True, True, True),
        (True, 1, True),
        (True, False, False),
        (1, True, False),
        (0.1 + 0.2, 0.3, True),
        (1.5, 1.6, False),
        (None, None, True),
        (None, "", False),
        ("", None, False),
        (Document({"a": [1]}), '{"a": [1]}', True),
        (Document({"a": [1]}), '{"a":[2]}', False),
        (Document({"a": 1}), {"a": 1}, False),
        (Document("text"), '"text"', True),
        (Document("text"), "text", False),
    ],
)
def test_values_are_compared_as_they_travel(expected: object, found: object, same: bool) -> None:
    assert same_value(expected, found) is same


def test_tables_nobody_wrote_to_do_not_count() -> None:
    assert same_state({"item": {(1,): {"id": 1}}}, {"item": {(1,): {"id": 1, "more": 2}}, "other": {(7,): {}}})
    assert not same_state({"item": {(1,): {"id": 1}}}, {"other": {}})


def test_each_difference_is_told_once() -> None:
    expected: Rows = {"item": {(1,): {"a": 1, "b": 2}, (2,): {"a": 1}}}
    found: Rows = {"item": {(1,): {"a": 7, "b": 8}, (3,): {"a": 1}}}
    kinds = {str(difference) for difference in differences(expected, found)}
    assert kinds == {
        "row 2 of item is missing",
        "row 3 of item is there but should not be",
        "row 1 of item: column a is 7 and should be 1",
    }


def test_json_in_a_json_string_comes_with_the_fix() -> None:
    told = str(Difference("different", "item", (1,), "extra", Document({"a": 1}), '"{\\"a\\": 1}"'))
    assert "wrap the text in JsonText" in told


def test_a_long_value_is_shortened() -> None:
    told = str(Difference("different", "item", (1,), "body", "x" * 5000, "y"))
    assert len(told) < 200
