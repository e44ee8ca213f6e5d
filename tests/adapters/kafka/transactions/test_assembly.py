"""Transactions are put together whole, in order and once, however their records are read and wherever reading stops."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kafka.transactions.assembly import REMEMBERED, Assembler, AssemblerPosition, Partition, Released
from adapters.kafka.transactions.spool import TransactionSpool
from changesource_sdk.adapter import Insert
from changesource_sdk.errors import AdapterError

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
START = AssemblerPosition({A0: 0, A1: 0, B0: 0}, {}, {})


def a_change(number: int) -> tuple[Insert]:
    return (Insert("t", {"id": number}),)


def told(released: Iterator[Released]) -> list[tuple[str | None, list[object]]]:
    return [(found.id, _ids(found)) for found in released]


def _ids(released: Released) -> list[object]:
    return [change.row["id"] for _, _, changes in released.entries for change in changes]  # type: ignore[union-attr]


def test_a_transaction_is_released_when_its_end_has_come_and_all_changes_are_there() -> None:
    assembler = Assembler(START)
    assert told(assembler.change(A0, 0, a_change(1), "T", 1)) == []
    assert told(assembler.end(0, "T", {"a": 1, "b": 1})) == []
    assert told(assembler.change(B0, 0, a_change(2), "T", 2)) == [("T", [1, 2])]


def test_changes_come_by_total_order() -> None:
    assembler = Assembler(START)
    told(assembler.change(B0, 0, a_change(3), "T", 3))
    told(assembler.change(A1, 0, a_change(2), "T", 2))
    told(assembler.change(A0, 0, a_change(1), "T", 1))
    assert told(assembler.end(0, "T", {"a": 2, "b": 1})) == [("T", [1, 2, 3])]


def test_transactions_come_in_the_order_of_their_ends() -> None:
    assembler = Assembler(START)
    told(assembler.end(0, "first", {"a": 1}))
    told(assembler.change(B0, 0, a_change(2), "second", 1))
    assert told(assembler.end(1, "second", {"b": 1})) == []
    assert told(assembler.change(A0, 0, a_change(1), "first", 1)) == [("first", [1]), ("second", [2])]


def test_a_change_that_comes_twice_counts_once() -> None:
    assembler = Assembler(START)
    told(assembler.change(A0, 0, a_change(1), "T", 1))
    told(assembler.change(A0, 1, a_change(1), "T", 1))
    assert told(assembler.end(0, "T", {"a": 2})) == []
    assert told(assembler.change(A0, 2, a_change(2), "T", 2)) == [("T", [1, 2])]


def test_a_transaction_that_comes_again_is_passed_over() -> None:
    assembler = Assembler(START)
    told(assembler.change(A0, 0, a_change(1), "T", 1))
    assert told(assembler.end(0, "T", {"a": 1})) == [("T", [1])]
    assert told(assembler.change(A0, 1, a_change(1), "T", 1)) == []
    assert told(assembler.end(1, "T", {"a": 1})) == []
    assert assembler.position().starts[A0] == 2
    assert assembler.position().transactions == 2


def test_a_transaction_without_followed_changes_is_released_empty() -> None:
    assert told(Assembler(START).end(0, "T", {})) == [("T", [])]


def test_a_record_of_no_transaction_waits_for_what_lies_before_it_in_its_partition() -> None:
    assembler = Assembler(START)
    told(assembler.change(A0, 0, a_change(1), "T", 1))
    assert told(assembler.change(A0, 1, a_change(2), None)) == []
    assert told(assembler.change(A1, 0, a_change(3), None)) == [(None, [3])]
    assert told(assembler.end(0, "T", {"a": 1})) == [("T", [1]), (None, [2])]


def test_what_waits_is_told_with_what_it_lacks() -> None:
    assembler = Assembler(START)
    told(assembler.change(A0, 0, a_change(1), "no END", 1, now=10.0))
    told(assembler.change(A0, 1, a_change(1), "short", 1, now=20.0))
    told(assembler.end(0, "short", {"a": 1, "b": 2}, now=21.0))
    assert [str(found) for found in assembler.stalled(20.0)] == [
        "1 record of transaction no END came, and its END has not"
    ]
    assert str(list(assembler.stalled(30.0))[1]) == (
        "1 record of transaction short and its END came, and its other records have not: 2 of b"
    )


def test_as_many_transactions_may_be_open_as_the_user_allows() -> None:
    assembler = Assembler(START, most_open=2)
    told(assembler.change(A0, 0, a_change(1), "one", 1))
    told(assembler.change(A0, 1, a_change(2), "two", 1))
    told(assembler.end(0, "two", {"a": 1, "b": 3}))
    with pytest.raises(AdapterError) as caught:
        told(assembler.change(A0, 2, a_change(3), "three", 1))
    assert caught.value.code == "too-many-open"
    assert caught.value.message == (
        "2 transactions are open, and no more are held; the first is waited for: "
        "1 record of transaction two and its END came, and its other records have not: 3 of b"
    )
    assert "open_limit=NUMBER" in caught.value.fix


def test_as_many_records_of_no_transaction_may_wait() -> None:
    assembler = Assembler(START, most_open=2)
    told(assembler.change(A0, 0, a_change(1), "T", 1))
    for offset in (1, 2):
        assert told(assembler.change(A0, offset, a_change(offset), None)) == []
    with pytest.raises(AdapterError, match=r"2 records of no transaction wait .* 1 record of transaction T came, and"):
        told(assembler.change(A0, 3, a_change(3), None))


def test_a_transaction_larger_than_memory_waits_in_files_and_comes_in_order(tmp_path: Path) -> None:
    count, spool = 3_000, TransactionSpool(20_000, str(tmp_path))
    assembler = Assembler(START, spool=spool)
    tracemalloc.start()
    try:
        for number in reversed(range(count)):
            row = {"id": number, "text": "x" * 1_000 + str(number)}
            told(assembler.change((A0, A1, B0)[number % 3], number, (Insert("t", row),), "T", number, weight=1_000))
        assert tracemalloc.get_traced_memory()[1] < 600_000, "its rows take six times the room"
        assert spool.files == count // 21
        [released] = assembler.end(0, "T", {"a": 2_000, "b": 1_000})
        assert _ids(released) == list(range(count))
    finally:
        tracemalloc.stop()
        assembler.close()
    assert list(tmp_path.iterdir()) == []


def test_ends_that_are_remembered_for_an_old_open_transaction_do_not_grow_without_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adapters.kafka.transactions.assembly.MOST_BEHIND", 10)
    assembler = Assembler(START)
    told(assembler.change(A0, 0, a_change(0), "old", 1))
    for number in range(1, 100):
        told(assembler.change(A0, number, a_change(number), f"T{number}", 1))
        assert told(assembler.end(number, f"T{number}", {"a": 1})) == [(f"T{number}", [number])]
    place = assembler.position()
    assert (place.starts[A0], place.read[A0], place.ended_from) == (0, 100, 1)
    assert told(assembler.end(100, "old", {"a": 1})) == [("old", [0])]
    assert assembler.position().ended_from == 101


# --- any history, read in any interleaving, interrupted anywhere ---


@dataclass
class Source:
    """Topics as Debezium would have written them, and what a reader must make of them."""

    data: dict[Partition, list[tuple[int, str | None, int]]]
    ends: list[tuple[str, dict[str, int]]]
    expected: list[tuple[str | None, list[int]]]


def a_source(dice: random.Random) -> Source:
    """Transactions that overlap in the partitions, ended in any order; some changes and ENDs are written twice."""
    source = Source({A0: [], A1: [], B0: []}, [], [])
    running: dict[str, list[tuple[int, Partition]]] = {}
    number = started = 0
    for _ in range(dice.randrange(4, 40)):
        action = dice.random()
        if action < 0.2:
            running[f"T{started}"] = []
            started += 1
        elif action < 0.7 and running:
            name = dice.choice(list(running))
            partition = dice.choice(list(source.data))
            number += 1
            running[name].append((number, partition))
            order = len(running[name])
            for _ in range(2 if dice.random() < 0.1 else 1):
                source.data[partition].append((number, name, order))
        elif action < 0.9 and running:
            name = dice.choice(list(running))
            changes = running.pop(name)
            counts: dict[str, int] = {}
            for _, (topic, _) in changes:
                counts[topic] = counts.get(topic, 0) + 1
            for _ in range(2 if dice.random() < 0.1 else 1):
                source.ends.append((name, counts))
            source.expected.append((name, [number for number, _ in changes]))
        elif action >= 0.9:
            number += 1
            source.data[dice.choice(list(source.data))].append((number, None, 0))
    return source


def read_some(
    source: Source, assembler: Assembler, place: AssemblerPosition, dice: random.Random
) -> Iterator[Released]:
    """Everything from a place on, partitions and the transaction topic in any interleaving."""
    cursors = dict[Partition | None, int](place.starts.items())
    cursors[None] = max(0, place.ended_from - REMEMBERED)
    lengths: dict[Partition | None, int] = {**{p: len(r) for p, r in source.data.items()}, None: len(source.ends)}
    while ready := [p for p, at in cursors.items() if at < lengths[p]]:
        partition = dice.choice(ready)
        at = cursors[partition]
        cursors[partition] += 1
        if partition is None:
            name, counts = source.ends[at]
            yield from assembler.end(at, name, counts)
        else:
            number, transaction, order = source.data[partition][at]
            yield from assembler.change(partition, at, a_change(number), transaction, order)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_any_history_is_read_whole_in_order_and_once_however_often_reading_starts_again(seed: int) -> None:
    dice = random.Random(seed)
    source = a_source(dice)
    place, found = START, []
    for attempt in range(6):
        assembler = Assembler(place)
        for released in read_some(source, assembler, place, dice):
            found += told(iter([released]))
            place = assembler.position()
            if attempt < 5 and dice.random() < 0.2:
                break
    transactions = [released for released in found if released[0] is not None]
    assert transactions == source.expected
    alone = [numbers[0] for name, numbers in found if name is None]
    open_at_the_end = {name for rows in source.data.values() for _, name, _ in rows if name} - {
        name for name, _ in source.ends
    }
    if not open_at_the_end:
        written = [number for rows in source.data.values() for number, name, _ in rows if name is None]
        assert Counter(alone) == Counter(written)
    for rows in source.data.values():
        in_order = [number for number, name, _ in rows if name is None and number in alone]
        assert [number for number in alone if number in in_order] == in_order
