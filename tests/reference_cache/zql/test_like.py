import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_cache.zql.like import LikePatternError, check_pattern, like


@pytest.mark.parametrize(
    ("pattern", "matching", "failing"),
    [
        ("abc", ["abc"], ["ab", "abcd", "ABC"]),
        ("", [""], ["a"]),
        ("%", ["", "a", "a\nb"], []),
        ("a%", ["a", "ab\nc"], ["ba", "A"]),
        ("%a", ["a", "ba"], ["ab"]),
        ("%a%", ["a", "bab"], ["b"]),
        ("a%b", ["ab", "axxb"], ["a", "b", "aba"]),
        ("aa%aa", ["aaaa", "aaxaa"], ["aaa", "aa"]),
        ("a_c", ["abc", "a\nc", "a😀c"], ["ac", "abbc"]),
        ("%b_d%", ["abcde"], ["abde"]),
        (r"100\%", ["100%"], ["1000"]),
        (r"a\_b", ["a_b"], ["axb"]),
        (r"\a\\", ["a\\"], ["a"]),
        ("a.c*[x](y)^$", ["a.c*[x](y)^$"], ["abc*[x](y)^$"]),
        ("%a%b%c%", ["abc", "xaybzc"], ["acb"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], failing: list[str]) -> None:
    match = like(pattern)
    assert [value for value in matching if not match(value)] == []
    assert [value for value in failing if match(value)] == []


def test_ilike_ignores_case_by_unicode_lower_casing() -> None:
    assert like("ÀB%", ignore_case=True)("àbc")
    assert like("straße", ignore_case=True)("STRAßE")
    assert not like("ab", ignore_case=True)("abc")


@pytest.mark.parametrize("pattern", ["\\", "a\\", "%\\", "\\\\\\"])
def test_a_lone_escape_at_the_end_is_refused(pattern: str) -> None:
    with pytest.raises(LikePatternError, match="lone backslash"):
        like(pattern)


def simple_regex(pattern: str) -> str:
    return "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern)


@given(st.text("ab%_", max_size=8), st.text("abc", max_size=8))
def test_every_pattern_agrees_with_a_plain_regular_expression(pattern: str, value: str) -> None:
    assert like(pattern)(value) == bool(re.fullmatch(simple_regex(pattern), value, re.DOTALL))


def test_a_pattern_made_to_backtrack_is_still_fast() -> None:
    match = like("%a_" * 30 + "%b")
    begin = time.perf_counter()
    assert not match("a" * 5_000)
    assert time.perf_counter() - begin < 2


@given(st.text("ab%_", max_size=12), st.text("ab", min_size=2, max_size=40))
def test_the_search_for_large_values_agrees_with_a_plain_regular_expression(pattern: str, value: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("reference_cache.zql.like._SMALL", 0)
        assert like(pattern)(value) == bool(re.fullmatch(simple_regex(pattern), value, re.DOTALL))


@pytest.mark.parametrize("pattern", ["%" + "a" * 4000 + "b%c", "%" + "a_" * 2000 + "b%", "%" + "a%" * 2000 + "_b%"])
def test_a_pattern_against_a_long_value_takes_linear_time(pattern: str) -> None:
    match = like(pattern)
    begin = time.perf_counter()
    assert not match("a" * 150_000)
    assert time.perf_counter() - begin < 2


def test_a_pattern_of_more_characters_than_anybody_needs_is_refused() -> None:
    with pytest.raises(LikePatternError, match="at most 4096"):
        like("%" * 4097)
    with pytest.raises(LikePatternError, match="at most 4096"):
        check_pattern("%" * 4097)
