import json
import math
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import values
from protocol.errors import CodecError

texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@given(json_values)
def test_values_survive_the_round_trip(value: object) -> None:
    assert values.loads(values.dumps(value)) == value


@given(st.integers(-(10**40), 10**40))
def test_integers_keep_every_digit(number: int) -> None:
    assert values.dumps([number]) == b"[%d]" % number
    assert values.loads(b'{"n":%d}' % number) == {"n": number}


@given(json_values)
def test_what_is_written_is_plain_json(value: object) -> None:
    assert json.loads(values.dumps(value)) == value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("around", [lambda x: x, lambda x: [1, (x,)], lambda x: {"a": [None, {"b": x}]}])
def test_numbers_that_json_does_not_have_are_not_written(number: float, around: object) -> None:
    assert callable(around)
    with pytest.raises(CodecError, match=r"nan|inf"):
        values.dumps(around(number))
    with pytest.raises(CodecError):
        values.dumps([2**70, around(number)])


def test_null_is_written() -> None:
    assert values.dumps({"a": None, "b": [1.5, "null", (None,)]}) == b'{"a":null,"b":[1.5,"null",[null]]}'


@pytest.mark.parametrize(
    "text",
    ["", "nan", "[NaN]", "[Infinity]", "[1e999]", "[12345678901234567890123e999]", "[NaN,12345678901234567890123]",
     '"\\ud800"', "[1,]", "\ud800", "[" + "9" * 5000 + "]"],
)  # fmt: skip
def test_what_is_not_json_is_not_read(text: str) -> None:
    with pytest.raises(CodecError, match="not JSON"):
        values.loads(text)


def test_bytes_that_are_not_utf8_are_not_read() -> None:
    with pytest.raises(CodecError, match="not JSON"):
        values.loads(b'"\xff"')
    with pytest.raises(CodecError, match="not JSON"):
        values.loads(b'["\xff", 12345678901234567890]')


def test_nesting_without_end_is_an_error_and_no_crash() -> None:
    with pytest.raises(CodecError):
        values.loads("[" * 100_000 + "1" * 30)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(CodecError):
        values.dumps(endless)


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), b"bytes", {1, 2}, object(), "\ud800"])
def test_values_that_json_does_not_have_are_not_written(value: object) -> None:
    with pytest.raises(CodecError, match="cannot be written as JSON"):
        values.dumps({"x": value})


def test_an_integer_of_more_digits_than_python_converts_is_an_error() -> None:
    with pytest.raises(CodecError, match="cannot be written as JSON"):
        values.dumps(10**5000)


def test_long_fractions_are_read_as_floats() -> None:
    assert values.loads("[0.1234567890123456789012345]") == [0.12345678901234568]


@pytest.mark.parametrize("edge", [2**63, 2**64, 10**18, 10**19, 10**20])
def test_integers_around_what_fits_a_word_are_read_exactly(edge: int) -> None:
    numbers = [sign * (edge + step) for sign in (1, -1) for step in (-1, 0, 1)]
    read = values.loads(str(numbers))
    assert read == numbers
    assert isinstance(read, list)
    assert set(map(type, read)) == {int}
