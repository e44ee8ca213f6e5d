"""An adapter read in a thread of its own: in order, as a stream, with its errors, and without hurry."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from changesource_sdk.adapter import Change, Insert, Position, Snapshot, Table, Transaction
from changesource_sdk.ledger.reading import CHUNK, BackgroundReader

SECONDS = 60.0


class Scripted:
    """An adapter that gives what it is told, then what `then` does."""

    poll_interval = 0.001

    def __init__(self, *transactions: Transaction, then: Any = None) -> None:
        self.transactions = transactions
        self.then = then
        self.threads: set[int] = set()
        self.asked: list[Position] = []

    def tables(self) -> list[Table]:
        return []

    def snapshot(self) -> Snapshot:
        return Snapshot(0, [])

    def changes(self, after: Position) -> Iterator[Transaction]:
        self.asked.append(after)
        self.threads.add(threading.get_ident())
        for transaction in self.transactions:
            if transaction.position > after:  # type: ignore[operator]
                yield transaction
        if self.then is not None:
            self.then()


def inserts(count: int) -> list[Change]:
    return [Insert("t", {"id": number}) for number in range(count)]


def taken(reading: BackgroundReader) -> tuple[Position, int]:
    transaction = reading.next(SECONDS)
    assert transaction is not None
    return transaction.position, len(list(transaction.changes))


def test_transactions_come_whole_and_in_order() -> None:
    sizes = [0, 1, CHUNK, CHUNK + 1, 20 * CHUNK]
    script = [Transaction(number, inserts(size)) for number, size in enumerate(sizes, start=1)]
    reading = BackgroundReader(Scripted(*script), 0)
    try:
        assert [taken(reading) for _ in script] == list(enumerate(sizes, start=1))
    finally:
        reading.close()


def test_a_silent_store_does_not_hold_up_whoever_waits() -> None:
    silent = threading.Event()
    reading = BackgroundReader(Scripted(then=silent.wait), 0)
    assert reading.next(0.001) is None
    reading.close()
    silent.set()


def test_changes_may_be_a_stream_that_belongs_to_the_adapters_thread() -> None:
    threads: set[int] = set()

    def stream() -> Iterator[Change]:
        for change in inserts(3 * CHUNK):
            threads.add(threading.get_ident())
            yield change

    adapter = Scripted(Transaction(1, stream()))
    reading = BackgroundReader(adapter, 0)
    try:
        assert taken(reading) == (1, 3 * CHUNK)
    finally:
        reading.close()
    assert threads == adapter.threads
    assert threading.get_ident() not in threads


def test_an_adapter_that_returns_is_asked_again_where_it_stopped() -> None:
    asked_again = threading.Event()
    adapter = Scripted(Transaction(1, []), Transaction(2, []))
    adapter.then = lambda: asked_again.set() if len(adapter.asked) > 1 else None
    reading = BackgroundReader(adapter, 0)
    try:
        assert [taken(reading)[0], taken(reading)[0]] == [1, 2]
        assert asked_again.wait(SECONDS)
    finally:
        reading.close()
    assert adapter.asked[:2] == [0, 2]


def test_an_error_comes_behind_what_was_read_before_it() -> None:
    def broken() -> None:
        raise OSError("the store is gone")

    reading = BackgroundReader(Scripted(Transaction(1, inserts(2)), then=broken), 0)
    assert taken(reading) == (1, 2)
    with pytest.raises(OSError, match="the store is gone"):
        reading.next(SECONDS)
    reading.close()


def test_an_error_amid_a_transaction_reaches_whoever_reads_it() -> None:
    def stream() -> Iterator[Change]:
        yield Insert("t", {"id": 1})
        raise OSError("cut off")

    reading = BackgroundReader(Scripted(Transaction(1, stream())), 0)
    with pytest.raises(OSError, match="cut off"):
        taken(reading)
    reading.close()
