import pytest

from reference_cache.zql.values import IncomparableError, compare, equal, identical, kind


def test_null_comes_before_everything_and_equals_itself_in_order() -> None:
    assert compare(None, None) == 0
    assert compare(None, "") == -1
    assert compare(-5, None) == 1


def test_strings_compare_by_code_point() -> None:
    assert compare("～", "😀") == -1
    assert compare("Z", "a") == -1
    assert compare("e\u0301", "é") == -1


def test_numbers_compare_across_integer_and_float() -> None:
    assert compare(1, 1.0) == 0
    assert compare(False, True) == -1


@pytest.mark.parametrize(("left", "right"), [(1, True), ("1", 1), ({}, []), ([1], [1]), ("a", {})])
def test_values_without_an_order_are_refused(left: object, right: object) -> None:
    with pytest.raises(IncomparableError):
        compare(left, right)


def test_identity_keeps_types_apart() -> None:
    assert identical(1, 1.0)
    assert not identical(1, True)
    assert identical(None, None)
    assert not identical({"a": 1}, {"a": 1})


def test_null_joins_with_nothing() -> None:
    assert not equal(None, None)
    assert equal("a", "a")


def test_kinds_have_the_languages_names() -> None:
    values: list[object] = [None, True, 1, 1.5, "a", {}, []]
    assert [kind(value) for value in values] == [
        "null",
        "boolean",
        "number",
        "number",
        "string",
        "json",
        "json",
    ]


def test_a_json_value_is_equal_in_order_to_itself_alone() -> None:
    value = {"a": 1}
    assert compare(value, value) == 0
