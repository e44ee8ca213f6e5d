"""The fold against a plain dict, in memory and spilled."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kafka.topics.fold import Fold
from changesource_sdk.adapter import BadRow
from changesource_sdk.errors import AdapterError

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put"] * 6 + ["merge", "remove"] * 3 + ["clear"]), st.integers(0, 40), st.integers(0, 99)
    ),
    max_size=120,
)


def folded(fold: Fold, steps: list[tuple[str, int, int]]) -> dict[int, dict[str, object]]:
    """The rows by id after doing to the fold what is done to the dict in `expected`."""
    for step, number, value in steps:
        key = str(number).encode()
        match step:
            case "put":
                fold.put(key, {"id": number, "a": value, "b": value})
            case "merge":
                fold.merge(key, {"id": number, "a": value})
            case "remove":
                fold.remove(key)
            case _:
                fold.clear()
    return {int(str(row["id"])): dict(row) for row in fold.rows()}


def expected(steps: list[tuple[str, int, int]]) -> dict[int, dict[str, object]]:
    rows: dict[int, dict[str, object]] = {}
    for step, number, value in steps:
        match step:
            case "put":
                rows[number] = {"id": number, "a": value, "b": value}
            case "merge":
                rows[number] = {**rows.get(number, {}), "id": number, "a": value}
            case "remove":
                rows.pop(number, None)
            case _:
                rows.clear()
    return rows


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([1000, 1 << 20]))
def test_the_rows_left_are_those_of_a_dict(steps: list[tuple[str, int, int]], limit: int) -> None:
    with Fold(limit) as fold:
        assert folded(fold, steps) == expected(steps)


def test_a_share_that_is_too_large_is_divided_again(tmp_path: Path) -> None:
    with Fold(2_000, str(tmp_path)) as fold:
        for number in range(2_000):
            fold.put(str(number % 1_500).encode(), {"id": number % 1_500, "n": number})
        assert fold.spilled
        assert {(row["id"], row["n"]) for row in fold.rows()} == {
            (number, number + 1_500 if number < 500 else number) for number in range(1_500)
        }


@pytest.mark.parametrize("limit", [100, 1 << 20])
def test_nothing_is_left_on_disk(tmp_path: Path, limit: int) -> None:
    with Fold(limit, str(tmp_path)) as fold:
        for number in range(100):
            fold.put(str(number).encode(), {"id": number})
        assert len(list(fold.rows())) == 100
    assert list(tmp_path.iterdir()) == []


def test_hot_keys_stay_in_memory() -> None:
    with Fold(10_000) as fold:
        for number in range(10_000):
            fold.put(str(number % 10).encode(), {"id": number % 10, "n": number})
        assert not fold.spilled
        assert sorted(int(str(row["n"])) for row in fold.rows()) == list(range(9_990, 10_000))


@pytest.mark.parametrize("limit", [100, 1 << 20])
def test_a_row_that_cannot_be_read_stays_so_until_a_whole_row_or_a_delete(limit: int) -> None:
    bad = BadRow("item", {"id": 1}, None, AdapterError("poison-record", "a message"))
    with Fold(limit) as fold:
        for number in range(100):
            key = str(number).encode()
            fold.put(key, {"id": number, "a": 1})
            fold.put_bad(key, bad)
            match number % 4:
                case 0:
                    fold.merge(key, {"id": number, "a": 2})
                case 1:
                    fold.put(key, {"id": number, "a": 2})
                case 2:
                    fold.remove(key)
        rows = list(fold.rows())
    assert sum(isinstance(row, BadRow) for row in rows) == 50
    assert sorted(row["id"] for row in rows if not isinstance(row, BadRow)) == list(range(1, 100, 4))  # type: ignore[type-var]
