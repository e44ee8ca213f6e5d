"""Upstream positions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changesource_sdk.errors import AdapterError
from changesource_sdk.positions import from_text, is_ahead, is_behind, to_text

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
)


@given(json_values)
def test_a_position_comes_back_as_it_was(position: object) -> None:
    assert from_text(to_text(position)) == position  # type: ignore[arg-type]


def test_the_order_of_keys_does_not_matter() -> None:
    assert to_text({"b": 1, "a": 2}) == to_text({"a": 2, "b": 1}) == '{"a":2,"b":1}'


def test_large_integers_are_exact() -> None:
    assert to_text(2**80) == str(2**80)
    assert to_text({"n": 2**80}) == f'{{"n":{2**80}}}'


def test_only_integers_have_an_order() -> None:
    assert is_behind(3, 3)
    assert is_ahead(4, 3)
    assert not is_behind("3", "4")
    assert not is_ahead(True, 0)


def test_what_is_not_json_is_refused_with_a_fix() -> None:
    with pytest.raises(AdapterError) as refused:
        to_text({1, 2})  # type: ignore[arg-type]
    assert refused.value.code == "position-not-json"
    assert "JSON values only" in refused.value.fix
