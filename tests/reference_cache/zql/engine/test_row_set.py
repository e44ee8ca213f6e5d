"""The rows of a query, counted by reference."""

from __future__ import annotations

import pytest

from reference_cache.zql.engine.row_set import RowId, RowSet

ANN: RowId = ("user", 1)
ONE: RowId = ("issue", 1)


@pytest.fixture
def rows() -> RowSet:
    made = RowSet()
    made.add(ANN, (1, "ann"))
    made.add(ONE, (1, "one"))
    return made


def test_keys_of_different_tables_stay_apart(rows: RowSet) -> None:
    assert dict(rows.items()) == {ANN: (1, "ann"), ONE: (1, "one")}
    assert len(rows) == 2
    assert rows[ANN] == (1, "ann")


def test_what_is_not_there_is_not_found(rows: RowSet) -> None:
    for absent in (("user", 2), ("comment", 1)):
        assert absent not in rows
        assert rows.get(absent) is None


@pytest.mark.parametrize("references", [1, 2, 3])
def test_a_row_goes_with_its_last_reference(rows: RowSet, references: int) -> None:
    for _ in range(references - 1):
        rows.add(ANN, (1, "ann"))
    for _ in range(references):
        assert ANN in rows
        rows.remove(ANN)
    assert ANN not in rows
    assert ONE in rows


def test_new_values_are_no_new_reference(rows: RowSet) -> None:
    rows.replace(ANN, (1, "anna"))
    assert rows.get(ANN) == (1, "anna")
    rows.remove(ANN)
    assert ANN not in rows


def test_another_reference_brings_the_newest_values(rows: RowSet) -> None:
    rows.add(ANN, (1, "anna"))
    assert rows[ANN] == (1, "anna")
    assert len(rows) == 2


def test_clearing_forgets_the_counts_too(rows: RowSet) -> None:
    rows.add(ANN, (1, "ann"))
    rows.clear()
    assert len(rows) == 0
    rows.add(ANN, (1, "ann"))
    rows.remove(ANN)
    assert ANN not in rows


def test_a_reference_to_a_row_that_is_not_there_cannot_be_taken_back(rows: RowSet) -> None:
    with pytest.raises(KeyError):
        rows.remove(("user", 2))
