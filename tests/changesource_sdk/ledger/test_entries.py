"""Entries as row changes, in order, and not before the store has shown what they confirm."""

from typing import Any

import pytest

from adapters.kafka.position import KafkaPosition
from adapters.kafka.records.catalog import Catalog
from changesource_sdk.adapter import Delete, Insert, Update
from changesource_sdk.ledger.entries import LedgerEntry, folded, has_reached, released
from changesource_sdk.system_tables import system_tables

CLIENT = {"clientGroupID": "g", "clientID": "c"}


def entry(
    sequence: int, *positions: Any, mutation: int = 1, result: str | None = None, kind: Any = "confirm"
) -> LedgerEntry:
    return LedgerEntry(sequence, kind, "g", "c", mutation, result, positions)


@pytest.mark.parametrize(
    ("wanted", "at", "reached"),
    [
        (3, 2, False),
        (3, 3, True),
        (3, 4, True),
        (2.5, 3, True),
        ("a", "a", True),
        ("a", "b", False),
        ({"p0": 5}, {"p0": 5, "p1": 0}, True),
        ({"p0": 5, "p1": 1}, {"p0": 9, "p1": 0}, False),
        ({"p2": 5}, {"p0": 9}, False),
        ({"p0": 5}, 9, False),
        ({"offsets": {"orders": {"1": 8}}}, {"offsets": {"orders": [0, 8]}, "topics": {}}, True),
        ({"offsets": {"orders": {"1": 8}}}, {"offsets": {"orders": [9, 7]}}, False),
        ({"2": 8}, [9, 9], False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 3], False),
    ],
)
def test_positions_are_compared_by_what_they_are(wanted: Any, at: Any, reached: bool) -> None:
    assert has_reached(wanted, at) is reached


def test_an_offset_of_kafka_is_reached_when_the_next_one_is_read() -> None:
    at = KafkaPosition({"orders": (3, 8)}, {"orders": "x"}, Catalog({})).to_json()
    assert has_reached({"offsets": {"orders": {"1": 8}}}, at)
    assert not has_reached({"offsets": {"orders": {"0": 4}}}, at)


def test_entries_are_told_in_order_and_none_before_its_data() -> None:
    waiting = [entry(1, 5), entry(2), entry(3, 9), entry(4, 6), entry(5, 2, 7)]
    told = {at: [each.sequence for each in released(waiting, at, has_reached)] for at in (4, 5, 8, 9)}
    assert told == {4: [], 5: [1, 2], 8: [1, 2], 9: [1, 2, 3, 4, 5]}


def test_the_first_confirmation_of_a_client_is_a_new_row_and_later_ones_change_it() -> None:
    row = {**CLIENT, "userID": None}
    assert list(entry(1).changes("zero_0")) == [Insert("zero_0.clients", {**row, "lastMutationID": 1})]
    assert list(entry(2, mutation=2).changes("zero_0")) == [Update("zero_0.clients", {**row, "lastMutationID": 2})]


def test_a_refusal_has_its_result_until_it_is_forgotten() -> None:
    _, kept = entry(1, mutation=3, result='{"error":"app"}').changes("app_7")
    assert isinstance(kept, Insert)
    assert (kept.table, kept.row["result"], kept.row["mutationID"]) == ("app_7.mutations", '{"error":"app"}', 3)
    assert list(entry(2, mutation=3, kind="forget").changes("app_7")) == [
        Delete("app_7.mutations", {**CLIENT, "mutationID": 3})
    ]


def test_rows_are_what_the_entries_leave() -> None:
    tables = [table for table in system_tables("zero", 0) if table.name != "permissions"]
    entries = [entry(1, result="{}"), entry(2, mutation=2, result="{}"), entry(3, mutation=1, kind="forget")]
    changes = [change for each in entries for change in each.changes("zero_0")]
    rows = folded(tables, ([], []), changes)
    assert [row["lastMutationID"] for row in rows["zero_0.clients"].values()] == [2]
    assert [row["mutationID"] for row in rows["zero_0.mutations"].values()] == [2]
