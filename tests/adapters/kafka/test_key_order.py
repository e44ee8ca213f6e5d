"""The newest record of a key over partitions, by each order; and that it is none rather than a wrong one."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.kafka.key_order import Candidate, Order, newest, order_of, source_order
from changesource_sdk.adapter import Delete, Insert
from tests.adapters.kafka.made_records import a_record


def at(partition: int, order: int | None, *, bound: bool = False) -> Candidate:
    return Candidate(partition, 0, None if order is None else ("timestamp", order), bound or order is None)


@pytest.mark.parametrize(
    ("candidates", "partition"),
    [
        ([at(0, None)], 0),
        ([at(0, 1), at(1, 2)], 1),
        ([at(0, 3), at(1, 2), at(2, 1)], 0),
        ([at(0, 2), at(1, 2)], None),
        ([at(0, 2), at(1, 2), at(2, 3)], 2),
        ([at(0, 1), at(1, None)], None),
        # A record without an order comes after the one before it in its partition, and nothing else is known.
        ([at(0, 1), at(1, 1, bound=True)], 1),
        ([at(0, 2), at(1, 1, bound=True)], None),
        ([at(0, 9), at(1, 1, bound=True)], None),
    ],
)
def test_the_newest_is_certainly_newer_than_all_others(candidates: list[Candidate], partition: int | None) -> None:
    found = newest(candidates)
    assert (None if found is None else found.partition) == partition


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=5), st.randoms())
def test_the_newest_does_not_depend_on_the_order_of_asking(made: list[tuple[int, bool]], random: object) -> None:
    candidates = [at(number, order, bound=bound) for number, (order, bound) in enumerate(made)]
    expected = newest(candidates)
    random.shuffle(candidates)  # type: ignore[attr-defined]
    assert newest(candidates) == expected


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"lsn": 9}, {"lsn": 10}),
        ({"file": "binlog.000009", "pos": 800, "row": 0}, {"file": "binlog.000010", "pos": 4, "row": 0}),
        ({"file": "binlog.1", "pos": 4, "row": 0}, {"file": "binlog.1", "pos": 4, "row": 1}),
        ({"commit_lsn": "0025:0d98:00a1", "change_lsn": None}, {"commit_lsn": "0025:0d98:00a2", "change_lsn": "0"}),
        ({"scn": "99", "commit_scn": "100"}, {"scn": "98", "commit_scn": "101"}),
        ({"ts_ms": 1000, "ord": 2}, {"ts_ms": 1001, "ord": 1}),
    ],
)
def test_debeziums_source_tells_the_order(older: dict[str, object], newer: dict[str, object]) -> None:
    one, other = source_order(older), source_order(newer)
    assert one is not None
    assert other is not None
    assert one < other


@pytest.mark.parametrize("source", [{}, {"lsn": None}, {"file": "binlog", "pos": 3}, {"scn": "1:2"}, {"ts_ms": 5}])
def test_a_source_without_a_position_has_no_order(source: dict[str, object]) -> None:
    assert source_order(source) is None


def test_positions_of_different_sources_are_not_compared() -> None:
    lsn, scn = source_order({"lsn": 1}), source_order({"scn": "5"})
    assert newest([Candidate(0, 0, lsn, False), Candidate(1, 0, scn, False)]) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, ("value", 7)),
        (Decimal("7.5"), ("value", 7.5)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), ("value", 1000)),
        ("7", None),
        (True, None),
        (None, None),
        (float("nan"), None),
        (1 << 70, None),
    ],
)
def test_numbers_and_times_of_a_column_tell_the_order(value: object, expected: Order | None) -> None:
    record = a_record("items", 0, 1, {"id": 1})
    assert order_of("column:version", record, None, Insert("item", {"id": 1, "version": value})) == expected
    assert order_of("column:version", record, None, Delete("item", {"id": 1})) is None


def test_a_record_without_a_timestamp_has_no_order() -> None:
    change = Insert("item", {"id": 1})
    assert order_of("timestamp", a_record("items", 0, 1, {"id": 1}, timestamp=5), None, change) == ("timestamp", 5)
    assert order_of("timestamp", a_record("items", 0, 1, {"id": 1}, timestamp=-1), None, change) is None
