"""Faults between a store and the pipeline: each one happens, and changes nothing but what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Adapter, Column, Insert, Position, Table
from changesource_sdk.testing.faults import Faults
from changesource_sdk.testing.faults.adapter_faults import DELAY_S, ConnectionDropped

TRANSACTIONS = 6


def a_maker() -> tuple[MemoryStore, Faults]:
    store = MemoryStore([Table("item", [Column("id", int)]), Table("other", [Column("id", int)])])
    for number in range(TRANSACTIONS):
        store.commit([Insert("item", {"id": number}), Insert("other", {"id": number})])
    return store, Faults(3)


def positions(adapter: Adapter) -> Iterator[Position]:
    for transaction in adapter.changes(0):
        assert len(list(transaction.changes)) == 2
        yield transaction.position


def test_a_duplicate_comes_right_after_the_first() -> None:
    store, faults = a_maker()
    found = list(positions(faults.adapter(lambda: MemoryAdapter(store=store), duplicate=2, within=5)()))
    assert len(found) == TRANSACTIONS + 2
    assert sorted(set(found), key=str) == list(range(1, TRANSACTIONS + 1))
    assert found == sorted(found, key=str)
    faults.settle()


def test_reordering_turns_partitions_around_and_repeats_an_old_transaction() -> None:
    store, faults = a_maker()
    adapter = faults.adapter(lambda: MemoryAdapter(store=store), reorder=1, within=4)()
    assert [partition.table for partition in adapter.snapshot().partitions] == ["other", "item"]
    found = list(positions(adapter))
    assert found != sorted(found, key=str)
    assert found.count(1) == 2
    faults.settle()


def test_a_dropped_connection_breaks_off_in_the_middle_of_a_transaction() -> None:
    store, faults = a_maker()
    adapter = faults.adapter(lambda: MemoryAdapter(store=store), drop=1, within=3)()
    seen = []
    with pytest.raises(ConnectionDropped, match="in the middle of a transaction"):
        for transaction in adapter.changes(0):
            seen.append(transaction.position)
            list(transaction.changes)
    assert len(seen) <= 3
    faults.settle()


def test_a_delay_takes_its_time_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store, faults = a_maker()
    waited: list[float] = []
    monkeypatch.setattr("threading.Event.wait", lambda self, timeout=None: waited.append(timeout))
    found = list(positions(faults.adapter(lambda: MemoryAdapter(store=store), delay=2, within=5)()))
    assert found == list(range(1, TRANSACTIONS + 1))
    assert waited == [DELAY_S, DELAY_S]
    faults.settle()


def test_what_no_fault_touches_is_passed_on() -> None:
    store, faults = a_maker()
    inner = MemoryAdapter(store=store)
    adapter = faults.adapter(lambda: inner)()
    assert adapter.tables() == inner.tables()
    assert adapter.snapshot() == inner.snapshot()
    assert list(positions(adapter)) == list(range(1, TRANSACTIONS + 1))
