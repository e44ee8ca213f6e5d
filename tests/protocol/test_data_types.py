import math

import pytest

from protocol.data_types import ValueKind, misfit, value_kind, zql_type


@pytest.mark.parametrize(
    ("data_type", "seen"),
    [
        ("int8", "number"),
        ("BIGINT", "number"),
        ("serial", "number"),
        ("numeric(10, 2)", "number"),
        ("double precision", "number"),
        ("date", "number"),
        ("timestamp with time zone", "number"),
        ("timestamp(3) without time zone", "number"),
        ("bool", "boolean"),
        ("varchar(20)", "string"),
        ("Character Varying(7)", "string"),
        ("uuid", "string"),
        ("ean13", "string"),
        ("jsonb", "json"),
        ("bytea", None),
        ("citext", None),
        ("varchar (20)", None),
    ],
)
def test_type_names_map_as_documented(data_type: str, seen: str | None) -> None:
    assert zql_type(data_type) == seen


def test_an_enum_is_a_string_unless_its_name_is_a_known_type() -> None:
    assert zql_type("mood", is_enum=True) == "string"
    assert zql_type("int4", is_enum=True) == "number"


def test_an_array_is_json_whatever_it_holds() -> None:
    assert value_kind("bytea[]", is_array=True) == "array"
    assert zql_type("bytea[]", is_array=True) == "json"


UUID = "6f2c0f2e-58a3-4f6e-9f0e-0a4b8d1c2e3f"
FITS: list[tuple[ValueKind, object]] = [
    ("integer", 2**63 - 1),
    ("integer", -(2**63)),
    ("number", 1),
    ("number", 1.5),
    ("boolean", True),
    ("boolean", 0),
    ("string", "00123"),
    ("uuid", UUID),
    ("uuid", UUID.upper()),
    ("json", {"any": ["thing"]}),
    ("json", 2**80),
    ("array", [1, "2"]),
    ("unsynced", "whatever"),
]


@pytest.mark.parametrize(("kind", "value"), FITS)
def test_suitable_values_pass(kind: ValueKind, value: object) -> None:
    assert misfit(kind, value) is None
    assert misfit(kind, None) is None


MISFITS: list[tuple[ValueKind, object, str]] = [
    ("integer", 2**63, "an integer beyond 64 bits"),
    ("number", -(2**63) - 1, "an integer beyond 64 bits"),
    ("integer", 1.5, "a float in an integer column"),
    ("integer", True, "a boolean in an integer column"),
    ("integer", "42", "a text in an integer column"),
    ("number", False, "a boolean in a number column"),
    ("number", math.nan, "NaN or Infinity"),
    ("json", math.inf, "NaN or Infinity"),
    ("boolean", "t", "a text in a boolean column"),
    ("boolean", 2, "an integer in a boolean column"),
    ("string", 5, "an integer in a text column"),
    ("string", {"a": 1}, "an object in a text column"),
    ("string", [1], "an array in a text column"),
    ("uuid", "00123", "a text in a uuid column"),
    ("uuid", 123, "an integer in a uuid column"),
    ("array", "{1,2}", "a text in an array column"),
]


@pytest.mark.parametrize(("kind", "value", "reason"), MISFITS)
def test_unsuitable_values_are_named(kind: ValueKind, value: object, reason: str) -> None:
    assert misfit(kind, value) == reason


def test_json_travels_as_text_where_the_transaction_says_so() -> None:
    assert misfit("json", '{"a": 1}', json_mode="s") is None
    assert misfit("json", {"a": 1}, json_mode="s") is None
    assert misfit("array", "[1, 2]", json_mode="s") is None
    assert misfit("json", "abc", json_mode="s") == "a text that is not JSON in a JSON column"
    assert misfit("array", '{"a": 1}', json_mode="s") == "an object in an array column"
    assert misfit("string", "abc", json_mode="s") is None
