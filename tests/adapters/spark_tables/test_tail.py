"""Versions of several tables as one stream: order, groups and positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.spark_tables.position import SparkTablesPosition
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TableVersion
from adapters.spark_tables.tail import interleaved, steps, transaction
from changesource_sdk.adapter import Delete
from changesource_sdk.errors import ResyncRequired
from changesource_sdk.positions import from_text, to_text

A, B = (TableSettings(name, "delta", f"/lake/{name}", ("id",)) for name in "ab")


def version(number: int, time_ms: float) -> TableVersion:
    return TableVersion(number, [Delete("t", {"id": number})], time_ms)


def test_a_position_comes_back_as_the_place_it_was() -> None:
    place = SparkTablesPosition({"a": {"v": 1}, "b": [2, "x"]})
    assert SparkTablesPosition.from_json(from_text(to_text(place.to_json([A, B]))), [A, B]) == place


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ([A], "b is no longer in the settings"),
        ([A, B, TableSettings("c", "delta", "/c", ("id",))], "the table is new"),
        ([A, TableSettings("b", "delta", "/lake/b", ("other",))], "its source or its key is another one"),
    ],
)
def test_other_settings_call_for_a_new_snapshot(tables: list[TableSettings], said: str) -> None:
    position = SparkTablesPosition({"a": 1, "b": 2}).to_json([A, B])
    with pytest.raises(ResyncRequired) as raised:
        SparkTablesPosition.from_json(position, tables)
    assert said in raised.value.message


@pytest.mark.parametrize("position", [None, 7, {"seq": 1}, {"tables": []}])
def test_a_foreign_position_calls_for_a_new_snapshot(position: object) -> None:
    with pytest.raises(ResyncRequired):
        SparkTablesPosition.from_json(position, [A])  # type: ignore[arg-type]


times = st.lists(st.integers(0, 20), max_size=8)


@given(times, times, times)
def test_every_version_comes_once_each_table_in_its_order_and_all_by_time(
    first: list[int], second: list[int], grouped: list[int]
) -> None:
    single = [
        steps(name, [version(n, time) for n, time in enumerate(found)]) for name, found in (("a", first), ("b", second))
    ]
    group = [*steps("c", [version(n, time) for n, time in enumerate(grouped)])]
    found = list(interleaved(single, [group]))
    for name, given_times in (("a", first), ("b", second), ("c", grouped)):
        mine = [step.version.position for together in found for step in together if step.table == name]
        assert mine == list(range(len(given_times)))
    ends = [together[-1].time_ms for together in found]
    assert ends == sorted(ends)
    assert sum(any(step.table == "c" for step in together) for together in found) == bool(grouped)


def test_a_clock_that_goes_back_does_not_reorder_a_table() -> None:
    found = [step.time_ms for step in steps("a", [version(1, 50), version(2, 40), version(3, 60)])]
    assert found == [50, 50, 60]


def test_a_transaction_holds_the_changes_of_its_steps_in_order() -> None:
    together = [*steps("a", [version(1, 5), version(2, 6)])]
    made = transaction(together, 9)
    assert [change.key["id"] for change in made.changes if isinstance(change, Delete)] == [1, 2]
    assert (made.position, made.commit_time_ms) == (9, 6)
