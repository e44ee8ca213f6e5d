"""Values through type changes and defaults: what a replica in SQLite makes of them."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changesource_sdk.schema import Column
from protocol.fold.replica_values import converted, declared_type, default_value

TYPES = ("int8", "text", "float8", "bool", "numeric", "varchar(20)", "json", "timestamptz", "uuid")


@pytest.mark.parametrize(
    ("value", "old", "new", "expected"),
    [
        (1, "int8", "text", "1"),
        (1.5, "float8", "text", "1.5"),
        (2.0, "float8", "text", "2.0"),
        (True, "bool", "text", "1"),
        (1, "int8", "bool", True),
        (7, "int8", "bool", 7),
        ("42", "text", "int8", 42),
        ("forty", "text", "int8", "forty"),
        (2**62, "int8", "text", str(2**62)),
        (None, "int8", "text", None),
    ],
)
def test_a_value_becomes_what_the_new_column_stores(value: object, old: str, new: str, expected: object) -> None:
    found = converted(value, old, new)
    assert (found, type(found)) == (expected, type(expected))


@given(
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text()),
    st.sampled_from(TYPES),
    st.sampled_from(TYPES),
)
def test_sending_a_converted_value_stores_what_converting_stored(value: object, old: str, new: str) -> None:
    sent = value
    if isinstance(value, int) and abs(value) < 2**53:
        value = float(value)
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return
    db = sqlite3.connect(":memory:")
    db.execute(f'CREATE TABLE t (a "{old}", b "{new}", c "{new}")')
    db.execute("INSERT INTO t (a) VALUES (?)", (value,))
    db.execute("UPDATE t SET b = a")
    db.execute("UPDATE t SET c = ?", (converted(sent, old, new),))
    assert db.execute("SELECT b IS c AND typeof(b) = typeof(c) FROM t").fetchone() == (1,)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column("c", "int8", default=7), 7),
        (Column("c", "float8", default=1.5), 1.5),
        (Column("c", "bool", default=True), True),
        (Column("c", "text", default="it's"), "it's"),
        (Column("c", "text"), None),
        (Column("c", "int4[]", default_sql="'{}'::int4[]"), "[]"),
    ],
)
def test_existing_rows_get_the_default(column: Column, expected: object) -> None:
    found = default_value(column.spec())
    assert (found, type(found)) == (expected, type(expected))


def test_an_enum_is_declared_as_text() -> None:
    assert declared_type(Column("c", "mood", enum=True).spec()) == "mood|TEXT_ENUM"
    assert converted(5, "int8", "mood|TEXT_ENUM") == "5"
