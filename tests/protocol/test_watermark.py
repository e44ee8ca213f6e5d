import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import watermark
from protocol.errors import WatermarkError

numbers = st.integers(0, watermark.MAX_INT) | st.integers(0, 100_000)
pairs = st.tuples(numbers, st.none() | numbers)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "00"), (10, "0a"), (35, "0z"), (36, "110"), (1000, "1rs"), (46655, "2zzz")]
)
def test_numbers_have_the_documented_form(number: int, text: str) -> None:
    assert watermark.from_int(number) == text
    assert watermark.to_int(text) == (number, None)


@given(pairs)
def test_a_number_survives_the_round_trip(pair: tuple[int, int | None]) -> None:
    assert watermark.to_int(watermark.from_int(*pair)) == pair


@given(pairs, pairs)
def test_strings_sort_like_their_numbers(left: tuple[int, int | None], right: tuple[int, int | None]) -> None:
    def rank(pair: tuple[int, int | None]) -> tuple[int, int]:
        return pair[0], -1 if pair[1] is None else pair[1]

    assert (watermark.from_int(*left) < watermark.from_int(*right)) == (rank(left) < rank(right))


@given(numbers.filter(lambda number: number < watermark.MAX_INT), st.none() | st.integers(0, 10**6))
def test_the_successor_is_higher_and_nothing_of_its_shape_is_between(major: int, minor: int | None) -> None:
    text = watermark.from_int(major, minor)
    after = watermark.succ(text)
    assert after > text
    assert watermark.to_int(after) == ((major + 1, None) if minor is None else (major, minor + 1))


def test_a_minor_sorts_between_its_major_and_the_next() -> None:
    assert "0a" < watermark.from_int(10, 0) < watermark.from_int(10, 36) < "0b"


def test_the_first_watermark_is_valid_and_the_empty_version_is_not() -> None:
    assert watermark.validate(watermark.MIN) == "01"
    assert watermark.validate("00.01") == "00.01"
    with pytest.raises(WatermarkError, match=r"empty view.*start at '01'"):
        watermark.validate("00")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at least one digit"),
        ("0", "at least one digit"),
        ("0A", "of 0-9 and a-z"),
        ("0a,", "of 0-9 and a-z"),
        ("0٣", "of 0-9 and a-z"),
        ("00000123", "'0' announces 1 digits, 7 follow"),
        ("2zz", "'2' announces 3 digits, 2 follow"),
        ("10a", "leading zeros"),
        ("0a.", "at least one digit"),
        ("0a.0b.0c", "of 0-9 and a-z"),
        ("2026-11-16", "of 0-9 and a-z"),
    ],
)
def test_what_is_no_watermark_is_refused_with_the_reason(text: str, reason: str) -> None:
    assert not watermark.is_valid(text)
    with pytest.raises(WatermarkError, match=reason) as caught:
        watermark.validate(text)
    assert "from_int" in caught.value.fix


@pytest.mark.parametrize("number", [-1, watermark.MAX_INT + 1])
def test_numbers_beyond_the_range_are_refused(number: int) -> None:
    with pytest.raises(WatermarkError, match="does not fit"):
        watermark.from_int(number)


def test_there_is_no_successor_of_the_largest() -> None:
    with pytest.raises(WatermarkError, match="does not fit"):
        watermark.succ(watermark.from_int(watermark.MAX_INT))


def test_is_valid_accepts_what_validate_accepts() -> None:
    assert watermark.is_valid("1rs.00")
