"""Rows made from declared columns: distinct, accepted by the SDK, and with every kind of value."""

from __future__ import annotations

import pytest

from changesource_sdk.adapter import Column, Table
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.schema import PYTHON_TYPES
from changesource_sdk.testing.conformance.sample_rows import row, samples

TYPES = [*PYTHON_TYPES.values(), "int2", "int4", "varchar", "timestamp", "real", "jsonb"]
TABLE = Table("every", [Column("id", int), *(Column(f"c{n}", name) for n, name in enumerate(TYPES))])


def test_rows_differ_by_number_and_version_and_keep_their_key() -> None:
    keys = {row(TABLE, number, 0)["id"] for number in range(50)}
    versions = [row(TABLE, 7, version) for version in range(20)]
    assert len(keys) == 50
    assert {version["id"] for version in versions} == {row(TABLE, 7, 0)["id"]}
    assert all(one != other for n, one in enumerate(versions) for other in versions[:n])


def test_every_row_and_sample_is_one_that_the_sdk_accepts() -> None:
    encoder = TableEncoder(TABLE)
    made = [*(row(TABLE, number, version) for number in range(5) for version in range(5)), *samples(TABLE, row)]
    assert all(encoder.insert(one) for one in made)


def test_samples_have_a_row_of_nulls_and_values_for_every_column() -> None:
    made = samples(TABLE, row)
    assert all(value is None for name, value in made[-1].items() if name != "id")
    for column in TABLE.columns[1:]:
        assert any(one[column.name] is not None for one in made), column.data_type
    assert len({one["id"] for one in made}) == len(made)


def test_a_type_nobody_knows_is_left_null_or_asked_for() -> None:
    assert row(Table("t", [Column("id", int), Column("shape", "geometry")]), 1, 0)["shape"] is None
    needed = Table("t", [Column("id", int), Column("shape", "geometry", optional=False)])
    with pytest.raises(ConfigurationError, match="cannot make a value of type geometry") as raised:
        row(needed, 1, 0)
    assert "override row()" in raised.value.fix
