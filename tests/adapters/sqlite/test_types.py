"""Declared types become data types."""

import pytest

from adapters.sqlite.types import data_type


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("INTEGER", "int8"),
        ("bigint unsigned", "int8"),
        ("TINYINT(1)", "int8"),
        ("BOOLEAN", "bool"),
        ("bool", "bool"),
        ("TEXT", "text"),
        ("VARCHAR(255)", "text"),
        ("NVARCHAR", "text"),
        ("CLOB", "text"),
        ("UUID", "text"),
        ("INTERVAL", "text"),
        ("REAL", "float8"),
        ("DOUBLE PRECISION", "float8"),
        ("FLOAT", "float8"),
        ("NUMERIC(10, 2)", "numeric"),
        ("decimal", "numeric"),
        ("JSON", "json"),
        ("jsonb", "json"),
        ("DATE", "text"),
        ("DATETIME", "text"),
        ("TIMESTAMP WITH TIME ZONE", "text"),
        ("BLOB", "bytea"),
        ("", "bytea"),
        ("ANY", "bytea"),
    ],
)
def test_a_declared_type_tells_consumers_one_data_type(declared: str, expected: str) -> None:
    assert data_type(declared) == expected


def test_dates_can_be_declared_to_be_numbers() -> None:
    assert data_type("DATETIME", "number") == "float8"
