"""Transactions are put together whole, in order and once, however their records are read and wherever reading stops."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kafka.transactions import REMEMBERED, Assembler, Partition, Place, Released
from changesource_sdk.adapter import Insert

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
START = Place({A0: 0, A1: 0, B0: 0}, {}, {})


def a_change(number: int) -> tuple[Insert]:
    return (Insert("t", {"id": number}),)


def told(released: Iterator[Released]) -> list[tuple[str | None, list[object]]]:
    return [(found.id, [change.row["id"] for change in found.changes]) for found in released]  # type: ignore[union-attr]


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
    assert assembler.place().starts[A0] == 2
    assert assembler.place().transactions == 2


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
        "transaction no END has 1 changes and its END has not come"
    ]
    assert str(list(assembler.stalled(30.0))[1]) == (
        "transaction short has ended with 1 changes there and others missing: 2 of b"
    )


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


def read_some(source: Source, assembler: Assembler, place: Place, dice: random.Random) -> Iterator[Released]:
    """Everything from a place on, partitions and the transaction topic in any interleaving."""
    cursors: dict[Partition | None, int] = {**place.starts, None: max(0, place.ended_from - REMEMBERED)}
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
            place = assembler.place()
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
        assert sorted(alone) == sorted(written)
    for rows in source.data.values():
        in_order = [number for number, name, _ in rows if name is None and number in alone]
        assert [number for number in alone if number in in_order] == in_order
