import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.sync.js_json import number_text, string_of, stringify


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (123456789012345680000, "123456789012345680000"),
        (2**63, "9223372036854776000"),
        (1.5e300, "1.5e+300"),
        (1e-6, "0.000001"),
        (1.234e-6, "0.000001234"),
        (1e-7, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (-3e-10, "-3e-10"),
        (5e-324, "5e-324"),
        (-0.0, "0"),
        (1.0, "1"),
        (100.5, "100.5"),
        (-7, "-7"),
    ],
)
def test_numbers_are_written_as_javascript_writes_them(value: float, text: str) -> None:
    assert number_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_number_reads_back_as_itself(value: float) -> None:
    assert float(number_text(value)) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    )
)
def test_written_json_reads_back_as_itself(value: object) -> None:
    assert json.loads(stringify(value)) == value


def test_json_is_compact_and_leaves_unicode_alone() -> None:
    assert stringify({"a": [1, None, True], "é😀": '"\n\u2028'}) == '{"a":[1,null,true],"é😀":"\\"\\n\u2028"}'


def test_lone_surrogates_are_escaped() -> None:
    assert stringify("a\ud800b") == '"a\\ud800b"'


def test_integer_like_keys_come_first_in_numeric_order() -> None:
    assert stringify({"b": 1, "10": 2, "9": 3, "01": 4}) == '{"9":3,"10":2,"b":1,"01":4}'


def test_numbers_json_cannot_carry_become_null() -> None:
    assert stringify([math.inf, math.nan]) == "[null,null]"


def test_string_form_of_a_list_joins_its_members() -> None:
    assert string_of((1, "a", True, 2.0)) == "1,a,true,2"
    assert string_of(None) == "null"
