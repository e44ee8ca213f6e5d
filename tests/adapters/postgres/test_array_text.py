from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.postgres.array_text import ArrayReader


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", []),
        ("{1,2}", ["1", "2"]),
        ("{NULL,null}", [None, None]),
        ('{"NULL",""}', ["NULL", ""]),
        ('{a,"b,c","d\\"e\\\\f"}', ["a", "b,c", 'd"e\\f']),
        ("{{1,NULL},{3,4}}", [["1", None], ["3", "4"]]),
        ("[0:1]={1,2}", ["1", "2"]),
        ("[1:1][-2:-1]={{1,2}}", [["1", "2"]]),
        ('{"{x}"," y "}', ["{x}", " y "]),
    ],
)
def test_arrays_as_postgres_writes_them(text: str, value: list[object]) -> None:
    assert ArrayReader(str).read(text) == value


def test_elements_are_decoded_and_nulls_are_not() -> None:
    assert ArrayReader(int).read("{{1,NULL},{3,4}}") == [[1, None], [3, 4]]


@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))))
def test_whatever_text_is_quoted_comes_back(values: list[str | None]) -> None:
    written = ["NULL" if v is None else '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values]
    assert ArrayReader(str).read("{" + ",".join(written) + "}") == values
